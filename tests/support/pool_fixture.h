// The pool of the test kit, for this tree's own tests.
#pragma once

#include "apps/testing/test_pool.h"

namespace bedplate::test {

using testing::kTestPoolBase;
using testing::kTestPoolBaseInRange;
using testing::TestPool;

}  // namespace bedplate::test

// Its name is no name of a table.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class ServiceWithABadName final : public Mistake {
 public:
  ServiceWithABadName() noexcept : Mistake("service_with_a_bad_name") {}
  const char* name() const noexcept override { return "The Cache"; }
} service_with_a_bad_name;

}  // namespace
}  // namespace bedplate

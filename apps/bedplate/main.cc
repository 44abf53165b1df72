// bedplate: the program with all services of this tree.
//
// Tested by tests/system/command_line_test.py.
#include "apps/blockd/block_service.h"
#include "apps/kvd/kv_service.h"
#include "apps/program/program.h"

int main(int count, char** words) {
  static bedplate::BlockService blockd;
  static bedplate::KvService kvd;
  return bedplate::run_program(count, words, {&blockd, &kvd});
}

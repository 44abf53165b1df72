// bedplate: the program with all services of this tree.
#include "apps/blockd/block_service.h"
#include "apps/kvd/kv_service.h"
#include "apps/ports/port_service.h"
#include "apps/program/program.h"
#include "apps/tsrelay/relay_service.h"

int main(int count, char** words) {
  static bedplate::DpdkService dpdk;
  static bedplate::PortService ports(dpdk);
  static bedplate::BlockService blockd;
  static bedplate::KvService kvd;
  static bedplate::RelayService tsrelay;
  return bedplate::run_program(count, words, {&dpdk, &ports, &blockd, &kvd, &tsrelay});
}

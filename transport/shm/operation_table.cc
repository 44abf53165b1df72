#include "transport/shm/operation_table.h"

namespace bedplate {

void OperationTable::create(OutgoingParts& parts) {
  BP_ASSERT(parts_ == nullptr);
  parts_ = &parts;
  share_ = PeerShare(parts.place.member_count(), kOperationCountMax, kOperationReserveCount);
}

}  // namespace bedplate

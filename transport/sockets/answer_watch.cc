#include "transport/sockets/answer_watch.h"

namespace bedplate {

void AnswerWatch::create(EventLoop& loop, uint64_t answer_ns_max, Counter& waiting, Counter& late) {
  loop_ = &loop;
  waiting_ = &waiting;
  late_ = &late;
  limit_.create(
      loop, answer_ns_max,
      [](void* self, Limited&) noexcept { static_cast<AnswerWatch*>(self)->late_->add(1); }, this);
}

}  // namespace bedplate

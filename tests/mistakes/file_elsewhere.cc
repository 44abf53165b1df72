// Begins to read a file on another thread.
#include "tests/mistakes/mistake.h"

namespace bedplate {
namespace {

class FileElsewhere final : public Mistake {
 public:
  FileElsewhere() noexcept : Mistake("file_elsewhere") {}
  Result<void> plan(ServicePlan& plan) override {
    plan.file(0, {.name = "users", .path = "/etc/passwd", .key = ""});
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    BP_TRY_ASSIGN(file_, context.file("users"));
    read_.memory = bytes_;
    read_.bytes = sizeof bytes_;
    read_.completed = [](void*, int64_t) noexcept {};
    return {};
  }
  void start(uint32_t) noexcept override {
    elsewhere(*loop_, [this] { file_->begin(read_); });
  }

 private:
  EventLoop* loop_ = nullptr;
  File* file_ = nullptr;
  char bytes_[16];
  FileOperation read_;
} file_elsewhere;

}  // namespace
}  // namespace bedplate

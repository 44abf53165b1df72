// Receives all progress reports, also of short work.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "platform/progress.h"

namespace bedplate::test {

class ProgressNews final : public ProgressListener {
 public:
  explicit ProgressNews(uint64_t period_ns = 0) : period_ns_(period_ns) {
    set_progress_listener(this);
  }
  ProgressNews(const ProgressNews&) = delete;
  ProgressNews& operator=(const ProgressNews&) = delete;
  ~ProgressNews() { set_progress_listener(nullptr); }

  uint64_t told_period_ns() const noexcept override { return period_ns_; }
  void told(const char* text, uint64_t patience_ns) noexcept override {
    const std::lock_guard lock(mutex_);
    texts.emplace_back(text);
    patiences_ns.push_back(patience_ns);
  }
  // The number of texts that begin with `begin` and contain `words`.
  size_t count_of(const std::string& begin, const std::string& words = "") const {
    size_t count = 0;
    for (const std::string& text : texts) {
      count += text.starts_with(begin) && text.find(words) != std::string::npos ? 1U : 0U;
    }
    return count;
  }

  std::vector<std::string> texts;
  std::vector<uint64_t> patiences_ns;

 private:
  const uint64_t period_ns_;
  std::mutex mutex_;
};

}  // namespace bedplate::test

// A file operation that records its result.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/files/files.h"
#include "transport/loop/event_loop.h"

namespace bedplate::test {

struct AskedFile {
  FileOperation operation;
  int64_t result = 0;
  uint32_t count = 0;  // completions
  std::vector<AskedFile*>* order = nullptr;
  EventLoop* to_stop = nullptr;

  AskedFile(FileAction action, void* memory, uint64_t bytes, uint64_t offset) {
    operation.action = action;
    operation.memory = memory;
    operation.bytes = bytes;
    operation.offset = offset;
    operation.context = this;
    operation.completed = [](void* self, int64_t outcome) noexcept {
      auto& asked = *static_cast<AskedFile*>(self);
      asked.result = outcome;
      ++asked.count;
      if (asked.order != nullptr) asked.order->push_back(&asked);
      if (asked.to_stop != nullptr) asked.to_stop->stop();
    };
  }
  AskedFile(const AskedFile&) = delete;
  AskedFile& operator=(const AskedFile&) = delete;
};

}  // namespace bedplate::test

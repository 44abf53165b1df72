#include "transport/files.h"

#include <cerrno>

#include "platform/assert.h"

namespace bedplate {

Result<void> Files::open(std::span<const FileOptions> files, FileBackend& backend,
                         const KeyTable& keys) {
  BP_ASSERT(backend_ == nullptr);
  uint32_t operation_count_max = 0;
  for (const FileOptions& options : files) {
    BP_ASSERT(options.fd >= 0 && options.operation_count_max > 0 && options.counters != nullptr);
    const auto index = static_cast<uint32_t>(files_.size());
    files_.push_back(File(options, *this, index));
    operation_count_max += options.operation_count_max;
  }
  backend_ = &backend;
  return backend.open(*this, keys, operation_count_max);
}

File* Files::find(std::string_view name) noexcept {
  for (File& file : files_) {
    if (file.name() == name) return &file;
  }
  return nullptr;
}

void Files::close() noexcept {
  if (backend_ == nullptr || is_closed_) return;
  is_closed_ = true;
  for (File& file : files_) {
    while (FileOperation* waiting = file.first_waiting_) {
      file.first_waiting_ = waiting->next;
      finish(*waiting, -ECANCELED);
    }
  }
  while (issued_count_ > 0) backend_->wait();
  backend_->close();
}

}  // namespace bedplate

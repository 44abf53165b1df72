// Captures this process's standard error for a while.
#pragma once

#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/file.h"

namespace bedplate::test {

class StderrCapture {
 public:
  StderrCapture() : file_(memfd_create("stderr", MFD_CLOEXEC)), before_(dup(STDERR_FILENO)) {
    fcntl(file_.number(), F_SETFL, O_APPEND);  // the kernel orders the writes of several threads
    dup2(file_.number(), STDERR_FILENO);
  }
  StderrCapture(const StderrCapture&) = delete;
  StderrCapture& operator=(const StderrCapture&) = delete;
  ~StderrCapture() { restore(); }

  // The text that was written so far.
  std::string text() const {
    std::string all(static_cast<size_t>(lseek(file_.number(), 0, SEEK_END)), '\0');
    const ssize_t got = pread(file_.number(), all.data(), all.size(), 0);
    all.resize(static_cast<size_t>(got < 0 ? 0 : got));
    return all;
  }

  // Ends the capture. Returns all text that was written.
  std::string finish() {
    restore();
    return text();
  }

 private:
  void restore() noexcept {
    if (!before_.is_open()) return;
    dup2(before_.number(), STDERR_FILENO);
    before_.close();
  }

  Fd file_;
  Fd before_;
};

}  // namespace bedplate::test

// Marks of the traffic's requests and answers, in order, in the log of writes itself.
//
//   dm:NAME      marks of the kernel's dm-log-writes, by the device mapper's message
//   file:LOG:TO  lines in the file TO, each with the current length of LOG, the log of QEMU's
//                blklogwrites: writes acknowledged before a mark lie below that length, writes sent
//                after it do not
#pragma once

#include <cstdio>
#include <mutex>
#include <string>

namespace bedplate::power {

class Marks {
 public:
  // Ends the process if it cannot open `where`.
  explicit Marks(const std::string& where);
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Threads: any. `text`: without blanks.
  void add(const std::string& text);

 private:
  std::mutex lock_;
  int fd_ = -1;              // the device mapper's, or the log's
  std::string device_;       // behind dm-log-writes
  std::FILE* to_ = nullptr;  // for marks in QEMU's log
};

[[noreturn]] void fail(const std::string& what);

}  // namespace bedplate::power

// Where the traffic says what it was answered: in the log of writes itself, in their order, by
// marks of the kernel's dm-log-writes.
#pragma once

#include <mutex>
#include <string>

namespace bedplate::power {

class Marks {
 public:
  // `device`: the device mapper's name of it. Ends the process where it cannot.
  explicit Marks(const std::string& device);
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Threads: any. `text`: without blanks.
  void add(const std::string& text);

 private:
  std::mutex lock_;
  const std::string device_;
  int fd_;  // the device mapper's
};

[[noreturn]] void fail(const std::string& what);

}  // namespace bedplate::power

#include "apps/blockd/stores/rbd_mapping.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/capabilities.h"
#include "platform/clock.h"
#include "platform/known_child.h"
#include "platform/log.h"
#include "platform/progress.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

// Waits this much longer than the kernel's own timeout: the kernel ends most waits itself, with a
// cause.
constexpr uint64_t kSlackNs = kNsPerSecond;
// A closed device may stay busy for this long: the kernel tears an io_uring down late.
constexpr uint64_t kLeftOverNs = 2 * kNsPerSecond;
constexpr uint64_t kUnmapNs = 10 * kNsPerSecond;
constexpr long kTryAgainNs = 10 * static_cast<long>(kNsPerMs);
constexpr size_t kTextBytesMax = 4096;  // a page: the limit of sysfs

// The child's message: the result of mapping, and later the result of unmapping.
struct Report {
  int error = 0;
  uint32_t id = 0;
  bool was_there = false;  // the device `id` existed before, and stays
};

void pause(long ns) noexcept {
  const timespec moment = {0, ns};
  nanosleep(&moment, nullptr);
}

// ---- The child ----------------------------------------------------------------------------------

// Closes all of the parent's descriptors except `own_end`, which becomes descriptor 3.
void keep_only(int own_end) noexcept {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
  dup2(own_end, 3);
  syscall(SYS_close_range, 4U, ~0U, 0U);
}

int unmap(RbdBus& bus, uint32_t id, uint64_t patience_ns) {
  const uint64_t begin_ns = monotonic_ns();
  int error = 0;
  while ((error = bus.remove(id)) == EBUSY && monotonic_ns() - begin_ns < patience_ns) {
    pause(kTryAgainNs);
  }
  return error;
}

// Unmaps the devices that ended appliances have left. `is_shared`: devices held by others stay.
// Otherwise it waits for their holders, too, for as long as an appliance may take to end.
Report unmap_left_over(RbdBus& bus, std::string_view text, bool is_shared) {
  const uint64_t begin_ns = monotonic_ns();
  while (const auto there = bus.find(text)) {
    bool is_alone = false;
    std::optional<HeldRbd> left;
    {
      const Fd alone = bus.alone();  // only during the search: `left` has a lock of its own
      is_alone = alone.is_open();
      if (is_alone) left = bus.hold(text);
    }
    if (!left && is_alone && is_shared) break;
    const int error = left ? bus.remove(left->id) : EBUSY;
    if (error == 0) continue;
    if (error == EBUSY && monotonic_ns() - begin_ns < kLeftOverNs) {
      pause(kTryAgainNs);
      continue;
    }
    if (!left && is_shared) break;  // others were adding for the whole time
    // Others add devices, so one without a holder may be left over or just added.
    return {.error = is_alone ? error : EAGAIN, .id = left ? left->id : *there, .was_there = true};
  }
  return {};
}

// Maps the image. On success the caller holds the device through `held`.
Report map(RbdBus& bus, const char* told, bool is_shared, HeldRbd* held) {
  std::string text = told;
  const Wiped wiped(text.data(), text.size());
  Report report = unmap_left_over(bus, text, is_shared);
  if (report.error != 0) return report;
  const Fd adding = bus.join_adding();
  report.error = bus.add(text);
  if (report.error != 0) return report;
  auto own = bus.hold(text);
  if (!own) return {.error = ENODEV};
  *held = std::move(*own);
  report.id = held->id;
  return report;
}

// `told` lies on the stack, which is private to the child; it shares its parent's heap.
[[noreturn]] void live_as_child(RbdBus& bus, char* told, bool is_shared, int own_end) {
  is_known_child = true;
  // The parent handles signals to the process group or to the whole service.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, "bedplate-rbd");
  keep_only(own_end);
  HeldRbd held;
  Report report = map(bus, told, is_shared, &held);
  explicit_bzero(told, std::strlen(told));
  bool is_told = send(3, &report, sizeof report, MSG_NOSIGNAL) == sizeof report;
  if (report.error != 0) _exit(0);
  char none = 0;
  while (is_told && recv(3, &none, 1, 0) < 0 && errno == EINTR) {
  }
  report.error = unmap(bus, report.id, kUnmapNs);
  is_told = send(3, &report, sizeof report, MSG_NOSIGNAL) == sizeof report;
  _exit(is_told ? 0 : 1);
}

// ---- The parent ---------------------------------------------------------------------------------

// Returns the child's report on `doing`. `error` is ETIMEDOUT if no report came within
// `timeout_ns`, ECHILD if the child has ended.
Report hear(int fd, const std::string& doing, uint64_t timeout_ns) noexcept {
  Report report;
  Progress progress(doing.c_str(), {.wait_max_ns = timeout_ns});
  pollfd wanted = {fd, POLLIN, 0};
  const uint64_t end_ns = monotonic_ns() + timeout_ns;
  int ready = 0;
  while (ready <= 0) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= end_ns) {
      report.error = ETIMEDOUT;
      return report;
    }
    progress.look();
    const uint64_t wait_ns = std::min(end_ns - now_ns, Progress::kLookPeriodNs);
    ready = poll(&wanted, 1, static_cast<int>(wait_ns / kNsPerMs + 1));
  }
  if (recv(fd, &report, sizeof report, 0) != sizeof report) report.error = ECHILD;
  return report;
}

// Reaps the child. After a second it gives up on a child that hangs in the kernel; if this process
// is PID 1, the kernel reaps it.
void reap(pid_t child) noexcept {
  const uint64_t begin_ns = monotonic_ns();
  while (waitpid(child, nullptr, WNOHANG) == 0 && monotonic_ns() - begin_ns < kNsPerSecond) {
    pause(kTryAgainNs);
  }
}

class MappedImage final : public MadeDevice {
 public:
  MappedImage(std::string name, std::string path, pid_t child, Fd end)
      : name_(std::move(name)), path_(std::move(path)), child_(child), end_(std::move(end)) {}
  ~MappedImage() override {
    shutdown(end_.number(), SHUT_WR);
    const Report report =
        hear(end_.number(), "unmapping the Ceph image " + name_, kUnmapNs + kSlackNs);
    reap(child_);
    if (report.error == 0) return;
    log_error(
        error_while("unmapping %s, which is %s", name_.c_str(), path_.c_str())
            .set_answer_errno(report.error)
            .set_cure("the kernel may still be unmapping it (dmesg); afterwards, run: rbd unmap %s",
                      path_.c_str()));
  }
  const std::string& path() const noexcept override { return path_; }

 private:
  const std::string name_, path_;
  const pid_t child_;
  const Fd end_;
};

Error mapping(const RbdImage& image, const CephSettings& ceph) {
  return error_while("mapping the Ceph image %s as client.%s", image.name().c_str(),
                     ceph.user.c_str());
}

// Explains the kernel's error number, as far as it is clear.
Error refused(const RbdImage& image, const CephSettings& ceph, int number) {
  Error error = mapping(image, ceph);
  error.set_answer_errno(number);
  const char* user = ceph.user.c_str();
  const std::string name = image.name();
  switch (number) {
    case ENOENT:
      error.set_answer("there is no such pool, or no such image in it");
      return error.set_cure("list the images (rbd ls %s), or create it: rbd create --size 10G %s",
                            image.pool.c_str(), name.c_str());
    case EACCES:
    case EPERM:
      error.set_answer("the cluster refuses the key (%s)", std::strerror(number));
      return error.set_cure("compare the keyring %s with ceph auth get client.%s, which needs mon "
                            "'profile rbd' and osd 'profile rbd pool=%s'",
                            ceph.keyring.c_str(), user, image.pool.c_str());
    case EINVAL:
      if (!image.is_writable) return error.set_cure("see dmesg");
      return error.set_cure("enable the lock that a writable image needs: rbd feature enable %s "
                            "exclusive-lock; else see dmesg",
                            name.c_str());
    case ENXIO:
      error.set_answer("the image has features that this kernel lacks");
      return error.set_cure("disable those that dmesg names: rbd feature disable %s FEATURE",
                            name.c_str());
    case EROFS:
    case EBUSY:
      error.set_answer("another client has locked it");
      return error.set_cure("stop that client (rbd status %s shows it), or name another image",
                            name.c_str());
    case ETIMEDOUT:
      error.set_answer("there was no result within %u s", ceph.timeout_s);
      if (!image.is_writable) {
        return error.set_cure("check whether monitors and OSDs run (ceph -s)");
      }
      return error.set_cure("check whether monitors and OSDs run (ceph -s), and whether another "
                            "client has locked it (rbd status %s)",
                            name.c_str());
    case ESHUTDOWN:
      error.set_answer("the cluster has put this machine on its blocklist");
      return error.set_cure(
          "find it with ceph osd blocklist ls, and remove it with ceph osd blocklist rm");
    default: return error.set_cure("see dmesg");
  }
}

Result<void> check_bus(const RbdBus& bus, const RbdImage& image, const CephSettings& ceph) {
  if (!bus.is_there()) {
    return mapping(image, ceph)
        .set_answer("the kernel's module rbd is not loaded")
        .set_cure("modprobe rbd, and name it in /etc/modules-load.d for the next start; an image "
                  "loads it by itself");
  }
  if (bus.is_allowed()) return {};
  return mapping(image, ceph)
      .set_answer("this needs CAP_SYS_ADMIN")
      .set_cure("start it as root; it then changes to the user of [appliance]");
}

}  // namespace

// ---- The bus ------------------------------------------------------------------------------------

bool RbdBus::is_there() const { return access((bus() + "/add_single_major").c_str(), F_OK) == 0; }

bool RbdBus::is_allowed() const {
  return (own_capabilities() & (uint64_t{1} << CAP_SYS_ADMIN)) != 0;
}

int RbdBus::write_to(const char* file, const std::string& text) const {
  const Fd fd(open((bus() + "/" + file).c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno;
  return write(fd.number(), text.data(), text.size()) < 0 ? errno : 0;
}

// `config_info` holds the text that was written, followed by a newline.
template <typename Each>
void RbdBus::look_through(std::string_view text, Each&& each) const {
  const std::string devices = bus() + "/devices";
  DIR* directory = opendir(devices.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    uint32_t id = 0;
    if (!parse_number(entry->d_name, &id)) continue;
    char seen[kTextBytesMax + 1];
    const Wiped wiped(seen, sizeof seen);
    const std::string path = devices + "/" + entry->d_name + "/config_info";
    if (!read_text_file(path.c_str(), seen, sizeof seen).ok()) continue;
    const std::string_view line = seen;
    if (line.size() != text.size() + 1 || !line.starts_with(text)) continue;
    if (each(id, path)) break;
  }
  closedir(directory);
}

std::optional<uint32_t> RbdBus::find(std::string_view text) const {
  std::optional<uint32_t> found;
  look_through(text, [&found](uint32_t id, const std::string&) {
    found = id;
    return true;
  });
  return found;
}

std::optional<HeldRbd> RbdBus::hold(std::string_view text) const {
  std::optional<HeldRbd> held;
  look_through(text, [&held](uint32_t id, const std::string& path) {
    Fd lock(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!lock.is_open() || flock(lock.number(), LOCK_EX | LOCK_NB) != 0) return false;
    held = {id, std::move(lock)};
    return true;
  });
  return held;
}

Fd RbdBus::turn(int operation) const {
  Fd lock(open((bus() + "/add_single_major").c_str(), O_WRONLY | O_CLOEXEC));
  while (lock.is_open() && flock(lock.number(), operation) != 0) {
    if (errno != EINTR) lock.close();
  }
  return lock;
}

Fd RbdBus::join_adding() const { return turn(LOCK_SH); }

Fd RbdBus::alone() const { return turn(LOCK_EX | LOCK_NB); }

// ---- A volume's image ---------------------------------------------------------------------------

Result<RbdImage> parse_rbd_image(const std::string& name) {
  const size_t slash = name.find('/');
  const auto is_word = [](std::string_view word) {
    return !word.empty() && word.find_first_of("/@, \t\n") == word.npos;
  };
  RbdImage image;
  if (slash != name.npos) {
    image.pool = name.substr(0, slash);
    image.image = name.substr(slash + 1);
  }
  if (is_word(image.pool) && is_word(image.image)) return image;
  return configuration_error_while("reading the name of a Ceph image")
      .set_answer("\"%s\", which is not the name of an image", name.c_str())
      .set_cure("expected \"POOL/IMAGE\"");
}

std::string rbd_map_text(const CephSettings& ceph, const std::string& key, const RbdImage& image) {
  const std::string timeout = std::to_string(ceph.timeout_s);
  std::string text;
  text.reserve(kTextBytesMax);  // if the string grew, its old memory would keep the key
  text.append(ceph_monitor_list(ceph.monitors)).append(" name=").append(ceph.user);
  text.append(",secret=").append(key).append(",mount_timeout=").append(timeout);
  if (image.is_writable) text.append(",exclusive,lock_timeout=").append(timeout);
  if (!image.is_writable) text.append(",ro");
  text.append(" ").append(image.pool).append(" ").append(image.image).append(" -");
  return text;  // returning append()'s result would copy it
}

Result<std::shared_ptr<MadeDevice>> RbdMaker::make() {
  if (refusal_) return *refusal_;
  if (auto there = made_.lock()) return there;
  auto mapped = map_anew();
  if (mapped.ok()) {
    made_ = mapped.value();
  } else {
    refusal_ = mapped.error();
  }
  return mapped;
}

Result<std::shared_ptr<MadeDevice>> RbdMaker::map_anew() {
  BP_TRY(check_bus(bus_, image_, ceph_));
  auto key = read_ceph_key(ceph_.keyring, ceph_.user);
  BP_TRY(key);
  const Wiped wiped_key(key.value().data(), key.value().size());
  const uint64_t timeout_ns = ceph_.timeout_s * kNsPerSecond;
  BP_TRY(monitors_.reach(ceph_.monitors, timeout_ns));
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return refused(image_, ceph_, errno);
  }
  Fd end(ends[0]);
  Fd other(ends[1]);
  char told[kTextBytesMax] = {};
  const Wiped wiped_told(told, sizeof told);
  {
    std::string text = rbd_map_text(ceph_, key.value(), image_);
    BP_ASSERT(text.size() < kTextBytesMax);  // the keys of the configuration are shorter than that
    text.copy(told, text.size());
    explicit_bzero(text.data(), text.size());
    explicit_bzero(key.value().data(), key.value().size());
  }
  const pid_t child = fork();
  if (child == 0) live_as_child(bus_, told, !image_.is_writable, other.number());
  if (child < 0) return refused(image_, ceph_, errno);
  other.close();
  const Report report = hear(end.number(), "mapping the Ceph image " + image_.name(),
                             kLeftOverNs + timeout_ns + kSlackNs);
  if (report.error == 0) {
    std::shared_ptr<MadeDevice> device = std::make_shared<MappedImage>(
        image_.name(), bus_.device_path(report.id), child, std::move(end));
    return device;
  }
  kill(child, SIGKILL);  // the kernel then gives its call up
  reap(child);
  if (!report.was_there) {
    unmap_left_over(bus_, told, true);  // the kernel may have just mapped the image
    return refused(image_, ceph_, report.error);
  }
  Error error = mapping(image_, ceph_);
  const std::string path = bus_.device_path(report.id);
  if (report.error == EAGAIN) {
    error.set_answer("another appliance is mapping an image; until that ends, it is unknown "
                     "whether %s is in use",
                     path.c_str());
    return error.set_cure("start again once that one is ready");
  }
  error.set_answer("it is already mapped, as %s: %s", path.c_str(), std::strerror(report.error));
  return error.set_cure("end what has it open (fuser %s), then run: rbd unmap %s", path.c_str(),
                        path.c_str());
}

}  // namespace bedplate

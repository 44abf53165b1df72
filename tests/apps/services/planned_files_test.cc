// Files of services: their plan, the errors of files that cannot be opened, and the functions of
// the C interface that operate on files.
#include "apps/services/planned_files.h"

#include <deque>

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/services/service_plan.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "transport/files/file_thread.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Store final : Service {
  const char* name() const noexcept override { return "store"; }
  void describe(ConfigurationTable&) override {}
  Result<void> plan(ServicePlan&) override { return {}; }
};

}  // namespace

TEST_GROUP(PlannedFiles) {
  char directory[64] = "/tmp/bedplate-planned-XXXXXX";
  std::string path;
  Configuration configuration;
  Store store;
  char text[1024];

  void setup() override {
    CHECK(mkdtemp(directory) != nullptr);
    path = std::string(directory) + "/journal";
    configuration.shards.resize(1);
  }
  void teardown() override {
    unlink(path.c_str());
    rmdir(directory);
  }

  FilePlan journal() {
    return {.name = "journal", .path = path, .key = "journal", .is_writable = true};
  }
  std::string planned(const std::vector<FilePlan>& files, std::vector<ServiceNeeds>* needs) {
    ServicePlan plan(configuration, store);
    for (const FilePlan& file : files) plan.file(0, file);
    auto taken = plan.take();
    if (!taken.ok()) return format_error(taken.error(), text, sizeof text);
    needs->push_back(taken.take());
    return "";
  }
  // Returns the error of the plan, or of opening the files; "": none.
  std::string problem(const std::vector<FilePlan>& files, bool may_create = true) {
    std::vector<ServiceNeeds> needs;
    const std::string refused = planned(files, &needs);
    if (!refused.empty()) return refused;
    std::vector<Error> problems;
    const auto opened = open_files(needs, may_create, &problems);
    if (problems.empty()) return "";
    return format_error(problems[0], text, sizeof text);
  }
};

TEST(PlannedFiles, AreOpenedAndCountedUnderTheirNames) {
  FilePlan plan = journal();
  plan.create = true;
  std::vector<ServiceNeeds> needs;
  STRCMP_EQUAL("", planned({plan}, &needs).c_str());
  LONGS_EQUAL(1, needs[0].descriptors);
  STRCMP_EQUAL("journal in [store]", needs[0].descriptor_keys.c_str());
  LONGS_EQUAL(1, needs[0].counters.size());
  STRCMP_EQUAL("journal", needs[0].counters[0].instance.c_str());
  std::vector<Error> problems;
  const auto opened = open_files(needs, true, &problems);
  LONGS_EQUAL(0, problems.size());
  LONGS_EQUAL(1, opened.size());
  STRCMP_EQUAL("store.journal", opened[0].options.name.c_str());
  POINTERS_EQUAL(&needs[0].counters[0], opened[0].counters);
  LONGS_EQUAL(1, opened[0].options.alignment_bytes);
  struct stat status {};
  LONGS_EQUAL(0, stat(path.c_str(), &status));
  LONGS_EQUAL(0600, status.st_mode & 0777);
}

namespace {

// Makes a device that is a file at `path`; the file is removed with the device.
class Maker final : public DeviceMaker {
 public:
  explicit Maker(std::string path) : path_(std::move(path)) {}
  bool is_refused = false;

  Result<std::shared_ptr<MadeDevice>> make() override {
    if (is_refused) {
      Error error;
      return error.set_doing("making it").set_answer("no").set_cure("none");
    }
    std::shared_ptr<MadeDevice> device = std::make_shared<Made>(path_);
    return device;
  }

 private:
  class Made final : public MadeDevice {
   public:
    explicit Made(const std::string& path) : path_(path) {
      const Fd file(open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
      CHECK(file.is_open() && ftruncate(file.number(), 4096) == 0);
    }
    // Checks that the file is closed: an open file would still be locked.
    ~Made() override {
      const Fd file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
      CHECK(flock(file.number(), LOCK_EX | LOCK_NB) == 0);
      unlink(path_.c_str());
    }
    const std::string& path() const noexcept override { return path_; }

   private:
    const std::string path_;
  };

  const std::string path_;
};

}  // namespace

TEST(PlannedFiles, AreMadeBeforeTheyAreOpenedAndGoOnceTheyAreClosed) {
  Maker maker(path);
  FilePlan plan = journal();
  plan.path = "/dev/for/people";
  plan.maker = &maker;
  for (const bool may_create : {true, false}) {  // `check` makes the device, too
    std::vector<ServiceNeeds> needs;
    STRCMP_EQUAL("", planned({plan}, &needs).c_str());
    std::vector<Error> problems;
    auto opened = open_files(needs, may_create, &problems);
    LONGS_EQUAL(0, problems.size());
    LONGS_EQUAL(4096, opened[0].options.bytes);
    LONGS_EQUAL(0, access(path.c_str(), F_OK));
    opened.clear();
    CHECK(access(path.c_str(), F_OK) != 0);
  }
  plan.bytes_min = 8192;
  STRCMP_CONTAINS(("opening " + path + " for journal in [store]: it has 4096 bytes").c_str(),
                  problem({plan}).c_str());
  CHECK(access(path.c_str(), F_OK) != 0);
  maker.is_refused = true;
  STRCMP_EQUAL("making it: no; none", problem({plan}).c_str());
  FilePlan second = plan;  // on the same device, with the same error
  second.name = "second";
  std::vector<ServiceNeeds> needs;
  STRCMP_EQUAL("", planned({plan, second}, &needs).c_str());
  std::vector<Error> problems;
  const auto opened = open_files(needs, true, &problems);
  LONGS_EQUAL(1, problems.size());
}

TEST(PlannedFiles, HaveOneWriterOrReaders) {
  FilePlan writer = journal();
  writer.create = true;
  std::vector<ServiceNeeds> needs;
  STRCMP_EQUAL("", planned({writer}, &needs).c_str());
  std::vector<Error> problems;
  const auto opened = open_files(needs, true, &problems);
  LONGS_EQUAL(0, problems.size());
  FilePlan reader = journal();
  reader.is_writable = false;
  reader.excludes_writers = true;
  STRCMP_CONTAINS("this process has already locked it; name another file",
                  problem({reader}).c_str());
  const pid_t child = fork();
  if (child == 0) {
    const std::string answer =
        "process " + std::to_string(getppid()) + " has locked it; stop that process first";
    for (const FilePlan& each : {reader, journal()}) {
      if (problem({each}).find(answer) == std::string::npos) _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  LONGS_EQUAL(0, WEXITSTATUS(status));
  FilePlan careless = journal();  // does not exclude writers
  careless.is_writable = false;
  STRCMP_EQUAL("", problem({careless}).c_str());
}

namespace {

// A keeper with a path and a verdict that the test sets: whether the content may be overwritten.
class Keeper final : public FileKeeper {
 public:
  std::string at;
  bool is_content_ours = true;
  int checked_count = 0;

  Result<std::string> path() override { return at; }
  Result<void> check(int fd) override {
    // Another open finds the file locked.
    const Fd other(open(at.c_str(), O_RDWR | O_CLOEXEC));
    CHECK(fd >= 0 && flock(other.number(), LOCK_EX | LOCK_NB) != 0);
    ++checked_count;
    if (is_content_ours) return {};
    Error error;
    return error.set_answer("it is a love letter").set_cure("name another file");
  }
};

}  // namespace

TEST(PlannedFiles, ThatAreWrittenToAreNamedOnceHoweverTheyAreCalled) {
  FilePlan first = journal();
  first.create = true;
  FilePlan second = first;
  second.name = "second";
  second.key = "log";
  const std::string link = std::string(directory) + "/link";
  LONGS_EQUAL(0, symlink("./journal", link.c_str()));
  const std::string answer = "for log in [store]: it is the same file as " + path +
                             " for journal in [store]; name another file";
  for (const bool is_there : {false, true}) {
    if (is_there) STRCMP_EQUAL("", problem({first}).c_str());
    for (const std::string& name :
         {path, "/tmp/.." + path, std::string(directory) + "/./journal", link}) {
      second.path = name;
      STRCMP_CONTAINS(answer.c_str(), problem({first, second}, is_there).c_str());
      FilePlan reader = second;
      reader.is_writable = reader.create = false;
      reader.excludes_writers = true;
      if (is_there) STRCMP_CONTAINS(answer.c_str(), problem({first, reader}).c_str());
    }
    CHECK(is_there == (access(path.c_str(), F_OK) == 0));
  }
  const std::string second_name = std::string(directory) + "/hard";
  LONGS_EQUAL(0, ::link(path.c_str(), second_name.c_str()));
  second.path = second_name;
  STRCMP_CONTAINS(answer.c_str(), problem({first, second}).c_str());
  unlink(second_name.c_str());
  unlink(link.c_str());
}

TEST(PlannedFiles, AKeeperSaysWhereItLiesAndWhetherItMayBeWrittenOver) {
  Keeper keeper;
  keeper.at = path;
  FilePlan plan = journal();
  plan.path = "/for/people";
  plan.create = true;
  plan.keeper = &keeper;
  STRCMP_EQUAL("", problem({plan}).c_str());
  LONGS_EQUAL(0, access(path.c_str(), F_OK));
  LONGS_EQUAL(1, keeper.checked_count);
  keeper.is_content_ours = false;
  for (const bool may_create : {true, false}) {
    STRCMP_EQUAL(("opening " + path +
                  " for journal in [store]: it is a love letter; name another "
                  "file")
                     .c_str(),
                 problem({plan}, may_create).c_str());
  }
}

TEST(PlannedFiles, ThatAreLongerThanThisProcessMayHaveThemAreRefused) {
  FilePlan plan = journal();
  plan.create = true;
  plan.bytes_max = 1 << 20;
  rlimit before = {};
  LONGS_EQUAL(0, getrlimit(RLIMIT_FSIZE, &before));
  const rlimit limit = {1 << 19, before.rlim_max};
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &limit));
  const std::string said = "for journal in [store]: it may grow to 1048576 bytes, but this process "
                           "may not write files beyond 524288; ulimit -f unlimited, or "
                           "LimitFSIZE=infinity";
  const std::string before_it_is_there = problem({plan}, false);
  const std::string as_it_grows = problem({plan});
  plan.bytes_max = 1 << 19;
  const std::string fits = problem({plan});
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &before));
  LONGS_EQUAL(0, truncate(path.c_str(), 1 << 20));
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &limit));
  const std::string as_it_is = problem({plan});
  plan.is_writable = plan.create = false;
  const std::string read = problem({plan});
  LONGS_EQUAL(0, setrlimit(RLIMIT_FSIZE, &before));
  for (const std::string& each : {before_it_is_there, as_it_grows, as_it_is}) {
    STRCMP_CONTAINS(said.c_str(), each.c_str());
  }
  STRCMP_EQUAL("", fits.c_str());
  STRCMP_EQUAL("", read.c_str());
}

TEST(PlannedFiles, ThatAreReadHaveManyReaders) {
  FilePlan made = journal();
  made.create = true;
  STRCMP_EQUAL("", problem({made}).c_str());
  FilePlan reader = journal();
  reader.is_writable = false;
  reader.excludes_writers = true;
  FilePlan second = reader;
  second.name = "second";
  STRCMP_EQUAL("", problem({reader, second}).c_str());
}

TEST(PlannedFiles, OfAWrongSizeAreRefusedWithTheCure) {
  FilePlan plan = journal();
  plan.create = plan.is_whole_blocks = true;
  STRCMP_CONTAINS("it is empty; give it its full size: truncate -s 1G", problem({plan}).c_str());
  LONGS_EQUAL(0, truncate(path.c_str(), 1000));
  STRCMP_CONTAINS(("it has 1000 bytes, not a multiple of its block size of 512; extend the last "
                   "block: truncate -s %512 " +
                   path)
                      .c_str(),
                  problem({plan}).c_str());
  LONGS_EQUAL(0, truncate(path.c_str(), 1024));
  STRCMP_EQUAL("", problem({plan}).c_str());
  plan.bytes_min = 4096;
  STRCMP_CONTAINS(("it has 1024 bytes, but 4096 are needed; make it longer (truncate -s 4096 " +
                   path + "), or configure less")
                      .c_str(),
                  problem({plan}).c_str());
}

TEST(PlannedFiles, APlanThatMakesNoSenseIsRefused) {
  FilePlan plan = journal();
  STRCMP_CONTAINS("store: planning the file journal: another one has this name; this is a defect",
                  problem({plan, plan}).c_str());
  plan.path = "journal";
  STRCMP_EQUAL("store: planning the file journal: its path is \"journal\"; expected a path that "
               "begins with /: see journal in [store]",
               problem({plan}).c_str());
  plan = journal();
  plan.create = true;
  plan.is_writable = false;
  STRCMP_CONTAINS("a file that is created must be writable", problem({plan}).c_str());
  plan = journal();
  plan.is_polled = true;
  STRCMP_CONTAINS("a file that is polled must be direct", problem({plan}).c_str());
  plan = journal();
  plan.operation_count_max = 0;
  STRCMP_CONTAINS("a file has 1..1024 operations in flight", problem({plan}).c_str());
  plan = journal();
  plan.name = "my file";
  STRCMP_CONTAINS("a file's name has 1..31 characters of a-z, 0-9 and _", problem({plan}).c_str());
}

TEST(PlannedFiles, WhatCannotBeOpenedIsToldWithPathAnswerAndCure) {
  FilePlan plan = journal();
  STRCMP_EQUAL(("opening " + path +
                " for journal in [store]: No such file or directory; create "
                "it, or name another file")
                   .c_str(),
               problem({plan}).c_str());
  plan.path = directory;
  STRCMP_CONTAINS("Is a directory; name a file, or a block device", problem({plan}).c_str());
  plan.path = "/dev/null";
  STRCMP_EQUAL("opening /dev/null for journal in [store]: it is neither a file nor a block device; "
               "name a file or a block device",
               problem({plan}).c_str());
  plan.path = path;
  LONGS_EQUAL(0, mkfifo(path.c_str(), 0600));  // a blocking open would wait for its other end
  for (const bool is_direct : {false, true}) {
    plan.is_direct = is_direct;
    STRCMP_CONTAINS("it is neither a file nor a block device", problem({plan}).c_str());
  }
  plan.path = "/proc/version";
  plan.is_writable = false;
  plan.is_direct = true;
  STRCMP_EQUAL("opening /proc/version for journal in [store]: its file system does not support "
               "direct access (O_DIRECT); move it to one that does (ext4, xfs), or open it without "
               "O_DIRECT",
               problem({plan}).c_str());
}

// If the drive cannot be polled, the error says so. Needs a file system with direct access.
TEST(PlannedFiles, ThatArePolledLieOnADriveThatIs) {
  FilePlan plan = journal();
  plan.create = plan.is_direct = true;
  if (!problem({plan}).empty()) BP_SKIP("the file system of /tmp has no direct access");
  plan.is_polled = true;
  const std::string said = problem({plan});
  if (said.empty()) BP_SKIP("this machine's drive is polled");
  STRCMP_CONTAINS(("opening " + path + " for journal in [store]: ").c_str(), said.c_str());
  STRCMP_CONTAINS("leave \"polled\" out", said.c_str());
}

TEST(PlannedFiles, ALookCreatesNothing) {
  FilePlan plan = journal();
  plan.create = true;
  STRCMP_EQUAL("", problem({plan}, false).c_str());
  CHECK(access(path.c_str(), F_OK) != 0);
  plan.path = std::string(directory) + "/none/journal";
  STRCMP_CONTAINS("No such file or directory; create its directory",
                  problem({plan}, false).c_str());
}

namespace {

// A block device whose bytes are those of a file, as long as this object.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& file) {
    const Fd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    const Fd backing(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    CHECK(backing.is_open() && ftruncate(backing.number(), 1 << 20) == 0);
    for (int attempts = 0; control.is_open() && attempts < 100 && path_.empty(); ++attempts) {
      // Another process may take the free one first.
      const int number = ioctl(control.number(), LOOP_CTL_GET_FREE);
      const std::string path = "/dev/loop" + std::to_string(number);
      device_ = Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (device_.is_open() && ioctl(device_.number(), LOOP_SET_FD, backing.number()) == 0) {
        path_ = path;
      }
    }
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;
  ~LoopDevice() {
    if (!path_.empty()) ioctl(device_.number(), LOOP_CLR_FD);
  }
  // Empty: this process may not make one.
  const std::string& path() const noexcept { return path_; }

 private:
  Fd device_;
  std::string path_;
};

}  // namespace

TEST(PlannedFiles, ADeviceThatIsToBeCreatedAndIsThereIsOpened) {
  const LoopDevice device(path);
  if (device.path().empty()) BP_SKIP("this process may not make a loop device");
  FilePlan plan = journal();
  plan.path = device.path();
  plan.create = true;
  for (const bool may_create : {false, true}) {
    // udev locks a new device while it looks at it.
    CHECK(test::eventually([&] { return problem({plan}, may_create).empty(); }));
  }
}

TEST(PlannedFiles, NothingIsCreatedAmongTheDevices) {
  FilePlan plan = journal();
  plan.path = "/dev/bedplate-planned-" + std::to_string(getpid());
  const std::string missing = " for journal in [store]: there is no such device; attach it (lsblk "
                              "lists the present ones), or name a file outside /dev";
  const std::string link = std::string(directory) + "/link";
  LONGS_EQUAL(0, symlink(plan.path.c_str(), link.c_str()));
  for (const std::string& name : {plan.path, link, plan.path + "/disk"}) {
    for (const bool create : {false, true}) {
      FilePlan each = plan;
      each.path = name;
      each.create = create;
      for (const bool may_create : {false, true}) {
        STRCMP_EQUAL(("opening " + name + missing).c_str(), problem({each}, may_create).c_str());
      }
    }
  }
  unlink(link.c_str());
  CHECK(access(plan.path.c_str(), F_OK) != 0);
  const Fd file(::open(plan.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.is_open()) BP_SKIP("this process may not make a file below /dev");
  const std::string refused = problem({plan});
  plan.is_writable = false;
  const std::string read = problem({plan});
  unlink(plan.path.c_str());
  STRCMP_EQUAL(("opening " + plan.path +
                " for journal in [store]: it is a file, not a device, and is gone at the next "
                "boot; remove it (rm " +
                plan.path + ") and attach the device, or name a file outside /dev")
                   .c_str(),
               refused.c_str());
  STRCMP_EQUAL("", read.c_str());
}

TEST(PlannedFiles, AreCreatedOnAFileSystemThatIsMountedBelowDev) {
  struct stat devices {};
  struct stat memory {};
  if (stat("/dev", &devices) != 0 || stat("/dev/shm", &memory) != 0 ||
      devices.st_dev == memory.st_dev) {
    BP_SKIP("/dev/shm is no file system of its own");
  }
  FilePlan plan = journal();
  plan.path = "/dev/shm/bedplate-planned-" + std::to_string(getpid());
  plan.create = true;
  const std::string looked_at = problem({plan}, false);
  const std::string created = problem({plan});
  const bool is_there = unlink(plan.path.c_str()) == 0;
  STRCMP_EQUAL("", looked_at.c_str());
  STRCMP_EQUAL("", created.c_str());
  CHECK(is_there);
  plan.path += "/none/journal";
  STRCMP_CONTAINS("No such file or directory; create its directory", problem({plan}).c_str());
}

TEST(PlannedFiles, TheCInterfaceOperatesOnThem) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EventLoop loop;
  CHECK(loop.create({}).ok());
  FileThread thread(loop);
  FileCounters counters;
  KeyTable keys;
  Files files;
  const FileOptions options = {
      .name = "store.journal", .fd = fd.number(), .bytes = 7, .counters = &counters};
  CHECK(files.open({&options, 1}, thread, keys).ok());
  auto* file = reinterpret_cast<bp_file*>(files.find("store.journal"));
  LONGS_EQUAL(7, bp_file_bytes(file));
  LONGS_EQUAL(1, bp_file_alignment(file));
  struct Answer {
    int count = 0;
    int64_t result = 0;
  } answer;
  const auto done = [](void* context, int64_t result) {
    auto& told = *static_cast<Answer*>(context);
    ++told.count;
    told.result = result;
  };
  bp_file_operation operation = {};
  const auto finish = [&] {
    const int before = answer.count;
    CHECK(test::eventually([&] {
      thread.poll(8);
      return answer.count == before + 1;
    }));
    return answer.result;
  };
  bp_file_write(file, &operation, "hello", 5, 3, done, &answer);
  LONGS_EQUAL(5, finish());
  bp_file_sync(file, &operation, 0, done, &answer);
  LONGS_EQUAL(0, finish());
  bp_file_sync(file, &operation, 1, done, &answer);
  LONGS_EQUAL(0, finish());
  char got[16] = {};
  bp_file_read(file, &operation, got, sizeof got, 3, done, &answer);
  LONGS_EQUAL(5, finish());
  STRCMP_EQUAL("hello", got);
  bp_file_allocate(file, &operation, 4096, 0, done, &answer);
  if (finish() == 0) LONGS_EQUAL(4096, lseek(fd.number(), 0, SEEK_END));
  bp_file_discard(file, &operation, 4096, 0, done, &answer);
  if (finish() == 0) {
    bp_file_read(file, &operation, got, 1, 3, done, &answer);
    LONGS_EQUAL(1, finish());
    BYTES_EQUAL(0, got[0]);
  }
  bp_file_write_zeroes(file, &operation, 4096, 4096, done, &answer);
  if (finish() == 0) LONGS_EQUAL(8192, lseek(fd.number(), 0, SEEK_END));
  CHECK(files.close(kNsPerSecond));
}

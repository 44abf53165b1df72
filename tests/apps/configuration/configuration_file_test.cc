// Configurations in files: errors of reading, the demos, and the documentation compared with the
// parser.
#include "apps/boot/loaded_configuration.h"
#include "tests/apps/configuration/configuration_support.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace bedplate;

namespace {

// Returns the text of a cell of a Markdown table, without blanks and backquotes.
std::string trimmed(const std::string& cell) {
  const size_t begin = cell.find_first_not_of(" `");
  if (begin == std::string::npos) return "";
  return cell.substr(begin, cell.find_last_not_of(" `") - begin + 1);
}

// A file that is removed at the end of the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int fd = mkstemp(path_);
    CHECK(fd >= 0);
    LONGS_EQUAL(text.size(), write(fd, text.data(), text.size()));
    close(fd);
  }
  ~TemporaryFile() { unlink(path_); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/bp_configuration_XXXXXX";
};

// Loads a file. Checks that a good file has no problem, and that a bad file has one.
std::optional<ParsedConfiguration> load(const std::string& path, Error* problem) {
  std::vector<Error> problems;
  ParsedConfiguration all;
  Service* const services[] = {all.service.get(), all.control.get()};
  auto configuration = load_configuration(path.c_str(), services, &problems);
  LONGS_EQUAL(configuration ? 0 : 1, std::min<size_t>(problems.size(), 1));
  if (!problems.empty()) *problem = problems[0];
  if (!configuration) return std::nullopt;
  static_cast<Configuration&>(all) = *configuration;
  return all;
}

std::string load_refusal(const std::string& path) {
  Error problem;
  if (load(path, &problem)) return "";
  CHECK(problem.kind == ErrorKind::kConfiguration);
  char message[1024];
  return format_error(problem, message, sizeof message);
}

}  // namespace

TEST_GROUP(ConfigurationFile){};

// ---- Files ----

TEST(ConfigurationFile, LoadsAFile) {
  const TemporaryFile file(file_with({}));
  Error problem;
  const auto configuration = load(file.path(), &problem);
  CHECK(configuration.has_value());
  STRCMP_EQUAL(described(parsed(file_with({}))).c_str(), described(*configuration).c_str());
}

TEST(ConfigurationFile, RefusesFilesThatCannotBeRead) {
  const std::string cure = "; name a readable file with the appliance's configuration";
  STRCMP_EQUAL(
      ("reading the configuration /tmp/bp_none.toml: No such file or directory" + cure).c_str(),
      load_refusal("/tmp/bp_none.toml").c_str());
  STRCMP_EQUAL(("reading the configuration /tmp: Is a directory" + cure).c_str(),
               load_refusal("/tmp").c_str());
  const TemporaryFile empty("");
  STRCMP_CONTAINS(":1:1: the file is empty; docs/configuration.md shows the smallest file that "
                  "works",
                  load_refusal(empty.path()).c_str());
  const TemporaryFile largest(std::string(kMiB, '\n'));
  STRCMP_CONTAINS(":1:1: [appliance] is missing", load_refusal(largest.path()).c_str());
  const TemporaryFile too_large(std::string(kMiB + 1, '\n'));
  STRCMP_CONTAINS(":1:1: the file is larger than 1 MiB; expected a configuration, which is a few "
                  "KiB of TOML text",
                  load_refusal(too_large.path()).c_str());
}

// A read of any of these files could block for ever.
TEST(ConfigurationFile, RefusesAtOnceWhatIsNoRegularFile) {
  char directory[] = "/tmp/bp_configuration_XXXXXX";
  CHECK(mkdtemp(directory) != nullptr);
  const std::string fifo = std::string(directory) + "/fifo";
  const std::string link = std::string(directory) + "/link";
  const std::string socket_file = std::string(directory) + "/socket";
  LONGS_EQUAL(0, mkfifo(fifo.c_str(), 0600));
  LONGS_EQUAL(0, symlink("fifo", link.c_str()));
  LONGS_EQUAL(0, mknod(socket_file.c_str(), S_IFSOCK | 0600, 0));
  int pipe_ends[2];
  LONGS_EQUAL(0, pipe(pipe_ends));
  const std::string pipe_file = "/dev/fd/" + std::to_string(pipe_ends[0]);
  for (const std::string& path : {fifo, link, socket_file, pipe_file, std::string("/dev/null"),
                                  std::string("/dev/zero"), std::string("/dev/ptmx")}) {
    STRCMP_EQUAL(("reading the configuration " + path +
                  ": it is not a regular file; name a readable file with the appliance's "
                  "configuration")
                     .c_str(),
                 load_refusal(path).c_str());
  }
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  for (const std::string& path : {fifo, link, socket_file}) unlink(path.c_str());
  LONGS_EQUAL(0, rmdir(directory));
}

TEST(ConfigurationFile, TheDemosAreGood) {
  STRCMP_EQUAL("", load_refusal(source_path("apps/demo.toml")).c_str());
  STRCMP_EQUAL("", load_refusal(source_path("apps/demo-two-shards.toml")).c_str());
}

TEST(ConfigurationFile, TheDemoServesRam0) {
  const auto c = parsed(source_text("apps/demo.toml"));
  STRCMP_EQUAL("demo /run/bedplate 5000 268435456 1 0 33554432 - - 2 50 100 0 shard main 0 blockd "
               "1 tcp:127.0.0.1:10809 0 64 64 10000 60 volume ram0 67108864 0 - -",
               described(c).c_str());
}

// The comment in apps/demo.toml gives the settings of apps/demo-two-shards.toml.
TEST(ConfigurationFile, TheDemosCommentIsTheOtherDemo) {
  std::istringstream lines(source_text("apps/demo.toml"));
  std::string line, text = "[appliance]\nname = \"demo\"\n[pool]\nbytes = \"256 MiB\"\n";
  bool in_part = false;
  while (std::getline(lines, line)) {
    in_part = in_part || line == "# [[shard]]";
    if (in_part && line.size() > 2) text += line.substr(2) + "\n";
  }
  text += "[[blockd.volume]]\nname = \"ram0\"\nbytes = \"64 MiB\"\n"
          "[[network]]\ninterface = \"eth0\"\naddress = \"10.0.2.15/24\"\n"
          "gateway = \"10.0.2.2\"\n";
  const auto other = parsed(source_text("apps/demo-two-shards.toml"));
  STRCMP_EQUAL((described(other) + described_init(other)).c_str(),
               (described(parsed(text)) + described_init(parsed(text))).c_str());
}

// ---- The documentation ----

TEST(ConfigurationFile, DocumentationHasEveryKeyAsTheParserKnowsIt) {
  std::istringstream lines(source_text("docs/configuration.md"));
  const std::vector<KeyDescription> keys = all_keys();
  size_t row = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `") || line.find("` | ") == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream rest(line.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) cells.push_back(trimmed(cell));
    if (cells.size() != 5) continue;  // another table of the document
    CHECK_TEXT(row < keys.size(), ("documented, but unknown: " + cells[0]).c_str());
    CHECK_TEXT(!keys[row].help.empty(), cells[0].c_str());
    CHECK_EQUAL_TEXT(markdown_row(keys[row]), line, "`make tables` writes it");
    ++row;
  }
  CHECK_TEXT(row == keys.size(), row < keys.size() ? keys[row].name.c_str() : "");
}

// The names of keys for sizes end in "bytes", and no others, so the unit of a size is clear.
TEST(ConfigurationFile, SizesAreCalledBytes) {
  for (const KeyDescription& key : all_keys()) {
    const bool is_size = key.type == "size" || key.name == "group.line_bytes";
    CHECK_EQUAL_TEXT(is_size, key.name.ends_with("bytes"), key.name.c_str());
  }
}

// A default that is written into the file changes nothing.
TEST(ConfigurationFile, DocumentedDefaultsAreTheOnesThatApply) {
  const std::string mesh = "[[group]]\nname = \"other\"\nlayout = \"mesh\"\nmembers = 2\n";
  const std::string stranger = "[[process]]\nname = \"other\"\nuser = \"1\"\ntrusted = false\n";
  int checked = 0;
  for (const KeyDescription& key : all_keys()) {
    const bool is_words =
        !key.default_text.starts_with('"') && key.default_text.find(' ') != std::string::npos;
    if (key.default_text == "required" || is_words) continue;
    const size_t dot = key.name.rfind('.');
    const std::string table = key.name.substr(0, dot);
    const std::string setting = key.name.substr(dot + 1) + " = " + key.default_text;
    // Some keys are valid in only one kind of table.
    const bool is_for_other = key.name == "group.multi_threaded" || key.name == "process.box_bytes";
    std::string text = (is_for_other ? file_with({}) + mesh + stranger : file_with_messages()) +
                       "[[network]]\ninterface = \"eth0\"\n[watchdog]\n[verbs]\n"
                       "[kvd]\nlisten = [\"unix:/kvd\"]\n"
                       "[[port]]\nname = \"wan\"\ndevice = \"memif:/m\"\n"
                       "[tsrelay]\n[[tsrelay.stream]]\nname = \"one\"\n"
                       "[[tsrelay.stream.leg]]\naddress = \"127.0.0.1:5004\"\n"
                       "[[tsrelay.stream.output]]\nto = \"127.0.0.1:6004\"\n"
                       "[[tsrelay.stream.recording]]\npath = \"/r\"\n"
                       "[tsrelay.stream.fec]\n";
    if (key.name.starts_with("blockd.volume.nvme_")) {
      const size_t volume = text.find("[[blockd.volume]]");
      text.insert(text.find('\n', volume) + 1, "nvme = \"0000:01:00.0\"\n");
    }
    if (key.name.starts_with("blockd.tenant.")) {
      text += "[[blockd.volume]]\nname = \"other\"\nbytes = 4096\ntenant = \"acme\"\n"
              "[[blockd.tenant]]\nname = \"acme\"\n";
    }
    if (key.name.starts_with("blockd.listener.")) {
      text += "[[blockd.listener]]\naddress = \"tcp:127.0.0.1:10809\"\n";
    }
    if (key.name.starts_with("kvd.listener.")) {
      text += "[[kvd.listener]]\naddress = \"unix:/kvd\"\n";
    }
    if (key.name.starts_with("blockd.ceph.")) {
      text += "[[blockd.volume]]\nname = \"image\"\nrbd = \"pool/image\"\n"
              "[blockd.ceph]\nmonitors = [\"tcp:10.0.0.1:6789\"]\nuser = \"bed\"\n"
              "keyring = \"/keyring\"\n";
    }
    const std::string expected = described(parsed(text)) + described_init(parsed(text));
    size_t at = text.find("[" + table + "]");
    if (at == std::string::npos) {
      text += "[" + table + "]\n" + setting + "\n";
    } else {
      text.insert(text.find('\n', at) + 1, setting + "\n");
    }
    const auto written = parsed(text);
    STRCMP_EQUAL(expected.c_str(), (described(written) + described_init(written)).c_str());
    ++checked;
  }
  LONGS_EQUAL(118, checked);
}

TEST(ConfigurationFile, DocumentedExamplesAreGood) {
  const std::string document = source_text("docs/configuration.md");
  const std::string fence = "```toml\n";
  int checked = 0;
  for (size_t at = document.find(fence); at != std::string::npos; at = document.find(fence, at)) {
    at += fence.size();
    ACCEPTED(document.substr(at, document.find("```", at) - at));
    ++checked;
  }
  LONGS_EQUAL(5, checked);
}

TEST(ConfigurationFile, DocumentedErrorsAreWhatComes) {
  const std::string document = source_text("docs/configuration.md");
  const auto check = [&document](size_t line, const char* text) {
    const std::string shown = "    bedplate: " + refusal(file_with(line, text), "demo.toml") + "\n";
    CHECK_TEXT(document.find(shown) != std::string::npos, shown.c_str());
  };
  check(2, "name = \"Demo\"");
  check(4, "byte = \"256 MiB\"");
  check(4, "bytes = 268435457");
  check(7, "");
  const std::string unreadable = load_refusal("demo.toml.that.is.not.there");
  STRCMP_CONTAINS("No such file or directory; name a readable file with the appliance's "
                  "configuration",
                  unreadable.c_str());
}

// Groups, processes and messages in a configuration: the meaning of their keys, and every refusal
// with its exact position.
#include "tests/apps/configuration/configuration_support.h"

using namespace bedplate;

namespace {

// Return the valid file with `text` as its [[group]], which begins at line 13, or as its
// [[process]], which begins at line 16.
std::string with_group(const std::string& text) { return file_with({}) + "[[group]]\n" + text; }
std::string with_process(const std::string& text) {
  return file_with({}) + "[[group]]\nname = \"main\"\nmembers = 9\n[[process]]\n" + text;
}

struct NumberKey {
  const char* name;
  uint32_t GroupShape::*field;
  long min;
  long max;
  bool is_power_of_two;
};

constexpr NumberKey kNumberKeys[] = {
    {"members", &GroupShape::member_count, 1, 2047, false},
    {"entries", &GroupShape::entry_count, 2, 32768, true},
    {"eager_bytes", &GroupShape::eager_bytes, 64, 8191, false},
    {"eager_count", &GroupShape::eager_count, 1, 32, false},
    {"boxes", &GroupShape::box_count, 0, 1 << 20, false},
    {"box_bytes", &GroupShape::box_bytes, 1024, 65536, true},
    {"box_max_count", &GroupShape::box_count_max, 0, 64, false},
    {"send_threshold", &GroupShape::send_threshold, 1, 65535, false},
    {"loans", &GroupShape::loan_count, 1, 65535, false},
    {"line_bytes", &GroupShape::line_bytes, 64, 128, true},
};

std::string group_with(const NumberKey& key, long value) {
  const bool is_members = key.field == &GroupShape::member_count;
  return with_group(std::string("name = \"g\"\n") + (is_members ? "" : "members = 4\n") + key.name +
                    " = " + std::to_string(value) + "\n");
}

}  // namespace

TEST_GROUP(ConfigurationMessages){};

// ---- Accepted files ----

TEST(ConfigurationMessages, ShortTablesHaveTheDefaults) {
  STRCMP_CONTAINS(" group main lazy 3 128 4096 4 2 4096 32 16 128 0 64 process worker root 1 0 1 2 "
                  "1 0 4096 0 /run/bedplate/demo.join xpmem cma knem 0",
                  described(parsed(file_with_messages())).c_str());
}

TEST(ConfigurationMessages, AHeapIsNotPlannedTwiceUnasked) {
  const auto places = [](const char* words) {
    const auto read = parsed(file_with_messages(words));
    const auto none = parsed(file_with_messages(std::string(words) + "spare_count = 0\n"));
    CHECK_EQUAL(none.groups[0].shape.member_count + read.processes[0].spare_count,
                read.groups[0].shape.member_count);
    return read.processes[0].place_count();
  };
  LONGS_EQUAL(2, places(""));
  LONGS_EQUAL(1, places("heap_bytes = \"8 MiB\"\n"));
}

TEST(ConfigurationMessages, EveryKeyArrives) {
  const std::string text = file_with({}) + R"(
[[process]]
name = "worker-1"
user = "storage"
trusted = true
group = "quick"
max_count = 3
spare_count = 2
members = 4
heap_bytes = "16 MiB"
read = ["heap", "volume:ram0"]
write = ["blockd"]
[[process]]
name = "probe"
user = "65534"
trusted = false
box_bytes = "64 KiB"
[[group]]
name = "slow"
layout = "lazy"
members = 9
entries = 256
eager_bytes = 64
eager_count = 2
boxes = 7
box_bytes = 1024
box_max_count = 0
send_threshold = 1
loans = 1
line_bytes = 128
[[group]]
name = "quick"
layout = "mesh"
members = 13
multi_threaded = true
[messages]
socket = "/tmp/join"
single_copy = ["knem", "cma"]
on_join_failure = "stop"
)";
  STRCMP_CONTAINS(" group slow lazy 9 256 64 2 7 1024 0 1 1 0 128 group quick mesh 21 128 4096 4 0 "
                  "4096 32 16 128 1 64 process worker-1 storage 1 1 3 5 4 16777216 r:heap "
                  "r:volume:ram0 w:blockd 4096 0 process probe 65534 0 0 1 1 1 0 65536 0 /tmp/join "
                  "knem cma 1",
                  described(parsed(text)).c_str());
}

TEST(ConfigurationMessages, NoSingleCopyIsAnEmptyList) {
  CHECK(parsed(file_with_messages("[messages]\nsingle_copy = []\n")).messages.single_copy.empty());
  LONGS_EQUAL(3, parsed(file_with_messages("[messages]\n")).messages.single_copy.size());
}

TEST(ConfigurationMessages, TheSocketLiesInTheRuntimeDirectory) {
  const std::string text = "name = \"x\"\nruntime_directory = \"/tmp/run\"";
  STRCMP_EQUAL("/tmp/run/x.join", parsed(file_with(2, text)).messages.socket.c_str());
}

TEST(ConfigurationMessages, BoxesAreEnoughForAllPairsOfASmallGroup) {
  const auto boxes = [](int members) {
    const std::string text = "name = \"g\"\nmembers = " + std::to_string(members) + "\n";
    return parsed(with_group(text)).groups[0].shape.box_count;
  };
  LONGS_EQUAL(12, boxes(4));
  LONGS_EQUAL(5 * 100, boxes(100));
}

// ---- Wrong values ----

// The parser and the layout accept the same values.
TEST(ConfigurationMessages, RangesAreThoseOfTheLayout) {
  for (const NumberKey& key : kNumberKeys) {
    const auto layout_accepts = [&key](long value) {
      GroupShape shape;
      shape.*key.field = static_cast<uint32_t>(value);
      return check_group_shape(shape).ok();
    };
    for (const long value : {key.min, key.max}) {
      STRCMP_EQUAL("", refusal(group_with(key, value)).c_str());
      CHECK_TEXT(layout_accepts(value), key.name);
    }
    const auto refuse = [&](long value, const std::string& why) {
      const std::string message = refusal(group_with(key, value));
      STRCMP_CONTAINS(
          (std::string("\"") + key.name + "\" is " + std::to_string(value) + why + "; expected ")
              .c_str(),
          message.c_str());
      CHECK_TEXT(!layout_accepts(value), key.name);
    };
    refuse(key.min - 1, "");
    refuse(key.max + 1, "");
    if (key.is_power_of_two) refuse(key.min + 1, ", not a power of two");
  }
}

TEST(ConfigurationMessages, RefusesAnEagerRegionThatNoOperationFitsInto) {
  const std::string lazy = "name = \"g\"\nmembers = 4\n";
  const std::string mesh = lazy + "layout = \"mesh\"\n";
  STRCMP_EQUAL("", refusal(with_group(lazy + "eager_bytes = 64\neager_count = 2\n")).c_str());
  STRCMP_EQUAL("", refusal(with_group(mesh + "eager_bytes = 64\neager_count = 3\n")).c_str());
  REFUSED("f:17:1: \"eager_bytes\" is 127 and \"eager_count\" is 1; expected 128 bytes or more as "
          "their product in the layout \"lazy\": a put or get needs that much",
          with_group(lazy + "eager_count = 1\neager_bytes = 127\n"));
  REFUSED("f:17:1: \"eager_bytes\" is 64 and \"eager_count\" is 2; expected 192 bytes or more as "
          "their product in the layout \"mesh\": a put or get needs that much",
          with_group(mesh + "eager_bytes = 64\neager_count = 2\n"));
}

TEST(ConfigurationMessages, RefusesWhatALayoutDoesNotHave) {
  const std::string mesh = "name = \"g\"\nlayout = \"mesh\"\nmembers = 4\n";
  const auto refuse = [&mesh](const std::string& key, const char* value) {
    REFUSED("f:17:1: \"" + key +
                "\" has no meaning in a mesh, where each pair has a lane of its "
                "own; leave it out, or set layout = \"lazy\"",
            with_group(mesh + key + " = " + value + "\n"));
  };
  refuse("boxes", "1");
  refuse("box_bytes", "1024");
  refuse("box_max_count", "1");
  refuse("send_threshold", "4");
  REFUSED("f:16:1: \"multi_threaded\" has no meaning in the layout \"lazy\"; leave it out, or set "
          "layout = \"mesh\"",
          with_group("name = \"g\"\nmembers = 4\nmulti_threaded = true\n"));
  REFUSED("f:15:10: \"layout\" is \"exchange\"; expected choice: \"lazy\" or \"mesh\"",
          with_group("name = \"g\"\nlayout = \"exchange\"\nmembers = 4\n"));
}

TEST(ConfigurationMessages, RefusesGroupsWithoutANameOrMembers) {
  REFUSED("f:13:1: \"name\" is missing in [[group]]; expected name: 1..32 of a-z, 0-9 and -, "
          "unique",
          with_group("members = 4\n"));
  REFUSED("f:13:1: \"members\" is missing in [[group]]; expected integer: 1..2047",
          with_group("name = \"g\"\n"));
  REFUSED("f:17:8: \"name\" \"g\" is already used by the [[group]] at line 14; expected a "
          "different one: each [[group]] has its own",
          with_group("name = \"g\"\nmembers = 4\n[[group]]\nname = \"g\"\nmembers = 4\n"));
}

TEST(ConfigurationMessages, RefusesGroupsThatAreNotThere) {
  REFUSED("f:19:9: no group has the name \"mian\"; expected one of: main",
          with_process("name = \"w\"\nuser = \"u\"\ngroup = \"mian\"\n"));
  REFUSED("f:16:9: no group has the name \"main\"; add a [[group]] with this name",
          file_with({}) + "[[process]]\nname = \"w\"\nuser = \"u\"\ngroup = \"main\"\n");
  REFUSED("f:19:9: \"group\" is an integer; expected group: the name of a group",
          with_process("name = \"w\"\nuser = \"u\"\ngroup = 1\n"));
  REFUSED("f:16:1: \"group\" is missing in [[process]]; expected group: the name of a group; or "
          "trusted = false",
          with_process("name = \"w\"\nuser = \"u\"\n"));
}

TEST(ConfigurationMessages, RefusesWhatOnlyOtherProcessesHave) {
  const std::string stranger = "name = \"w\"\nuser = \"u\"\ntrusted = false\n";
  REFUSED("f:20:1: \"group\" is for trusted processes; leave it out, or set trusted = true: other "
          "processes share memory with the owner only",
          with_process(stranger + "group = \"main\"\n"));
  REFUSED("f:20:1: \"write\" is for trusted processes; leave it out: other processes write only to "
          "their exchange segment and their heap",
          with_process(stranger + "write = [\"blockd\"]\n"));
  REFUSED("f:20:1: \"spare_count\" is for trusted processes; leave it out: only the owner can hold "
          "the slot of such a process",
          with_process(stranger + "spare_count = 1\n"));
  REFUSED("f:20:1: \"members\" is 2; expected 1: a process that is not trusted is one member",
          with_process(stranger + "members = 2\n"));
  REFUSED("f:20:1: \"box_bytes\" is for processes that are not trusted; leave it out: the boxes of "
          "a group are set in [[group]]",
          with_process("name = \"w\"\nuser = \"u\"\ngroup = \"main\"\nbox_bytes = 1024\n"));
  ACCEPTED(with_process(stranger + "members = 1\nwrite = []\nread = [\"heap\"]\n"));
}

TEST(ConfigurationMessages, RefusesProcessesOfNobody) {
  REFUSED("f:16:1: \"user\" is missing in [[process]]; expected text: 1..32 bytes",
          with_process("name = \"w\"\ngroup = \"main\"\n"));
  REFUSED("f:18:8: \"user\" is an integer; expected text: 1..32 bytes",
          with_process("name = \"w\"\nuser = 1000\ngroup = \"main\"\n"));
  REFUSED("f:21:8: \"name\" \"worker\" is already used by the [[process]] at line 17; expected a "
          "different one: each [[process]] has its own",
          file_with_messages("[[process]]\nname = \"worker\"\nuser = \"1\"\ngroup = \"main\"\n"));
  REFUSED("f:20:14: \"heap_bytes\" is 4097 bytes, not a multiple of 4 KiB; expected size: 0 "
          "bytes..64 TiB, a multiple of 4 KiB, 0 or at least 8 MiB",
          file_with_messages("heap_bytes = 4097\n"));
}

TEST(ConfigurationMessages, RefusesHeapsThatServeNobody) {
  const std::string expected =
      "; expected size: 0 bytes..64 TiB, a multiple of 4 KiB, 0 or at least 8 MiB";
  REFUSED("f:20:14: \"heap_bytes\" is 8384512 bytes, less than a heap needs" + expected,
          file_with_messages("heap_bytes = 8384512\n"));
  REFUSED("f:20:14: \"heap_bytes\" is 4096 bytes, less than a heap needs" + expected,
          file_with_messages("heap_bytes = \"4 KiB\"\n"));
  ACCEPTED(file_with_messages("heap_bytes = \"8 MiB\"\n"));
  ACCEPTED(file_with_messages("heap_bytes = 0\n"));
}

TEST(ConfigurationMessages, RefusesToGrantWhatEachProcessHasOfItsOwn) {
  const std::string wrong = "is \"boot\", of which each process has its own; expected list of "
                            "owners: 0..128 owners of segments, except boot, unique";
  REFUSED("f:20:9: element 1 of \"read\" " + wrong, file_with_messages("read = [\"boot\"]\n"));
  REFUSED("f:20:20: element 2 of \"write\" " + wrong,
          file_with_messages("write = [\"blockd\", \"boot\"]\n"));
}

TEST(ConfigurationMessages, RefusesListsAndTheirElements) {
  const std::string owners =
      "; expected list of owners: 0..128 owners of segments, except boot, unique";
  REFUSED("f:20:8: \"read\" is a string" + owners, file_with_messages("read = \"heap\"\n"));
  REFUSED("f:20:9: element 1 of \"read\" is an integer" + owners,
          file_with_messages("read = [1]\n"));
  REFUSED("f:20:9: element 1 of \"read\" is empty" + owners, file_with_messages("read = [\"\"]\n"));
  REFUSED("f:20:18: element 2 of \"write\" appears twice" + owners,
          file_with_messages("write = [\"heap\", \"heap\"]\n"));
  const std::string kinds =
      "; expected list of choices: 0..3 of \"xpmem\", \"cma\" or \"knem\", unique";
  const auto single_copy = [](const char* list) {
    return file_with_messages(std::string("[messages]\nsingle_copy = ") + list + "\n");
  };
  REFUSED("f:21:16: element 1 of \"single_copy\" is \"CMA\"" + kinds, single_copy("[\"CMA\"]"));
  REFUSED("f:21:23: element 2 of \"single_copy\" appears twice" + kinds,
          single_copy("[\"cma\", \"cma\"]"));
  REFUSED("f:21:15: \"single_copy\" has 4 elements" + kinds,
          single_copy("[\"cma\", \"cma\", \"cma\", \"cma\"]"));
  REFUSED("f:21:19: \"on_join_failure\" is \"panic\"; expected choice: \"continue\" or \"stop\"",
          file_with_messages("[messages]\non_join_failure = \"panic\"\n"));
}

TEST(ConfigurationMessages, RefusesSocketsThatAreTooLong) {
  const std::string expected = "; expected path: begins with /, 1..107 bytes";
  REFUSED("f:21:10: \"socket\" is 108 bytes long" + expected,
          file_with_messages("[messages]\nsocket = \"/" + std::string(107, 'x') + "\"\n"));
  const std::string directory = "/" + std::string(96, 'x');
  const auto file = [&](const std::string& more) {
    std::string text =
        file_with(2, "name = \"demo\"\nruntime_directory = \"" + directory + more + "\"");
    return text + kMessagesLines;
  };
  ACCEPTED(file(""));  // 107 bytes with /demo.join
  STRCMP_CONTAINS("f:1:1: \"/xxx", refusal(file("x")).c_str());
  STRCMP_CONTAINS("is too long for a socket: 108 bytes; set \"socket\" in [messages]: path: begins "
                  "with /, 1..107 bytes",
                  refusal(file("x")).c_str());
  ACCEPTED(file("x") + "[messages]\nsocket = \"/tmp/s\"\n");
}

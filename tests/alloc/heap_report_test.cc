// Compares mallinfo, malloc_stats and malloc_info with the memory that was allocated.
#include "alloc/heap_report.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <malloc.h>

#include "alloc/metadata_zone.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::BlockList;

TEST_GROUP(HeapReport){};

// mallinfo, malloc_stats and malloc_info report the same numbers as mallinfo2.
BP_PROBE(HeapTellsOfItself) {
  constexpr size_t kHeapBytes = 64 * kMiB - kMetadataZoneBytes;
  const struct mallinfo2 before = mallinfo2();
  BP_PROBE_CHECK(before.arena == kHeapBytes && before.uordblks + before.fordblks == before.arena);
  BlockList blocks;
  void* volatile one = std::malloc(10'000);
  for (int i = 0; i < 1000; ++i) BP_PROBE_CHECK(blocks.add(10'000));
  const struct mallinfo2 after = mallinfo2();
  BP_PROBE_CHECK(after.arena == before.arena);
  BP_PROBE_CHECK(after.uordblks - before.uordblks >= 9'900'000);
  BP_PROBE_CHECK(after.uordblks - before.uordblks <= 12 * kMiB);
  BP_PROBE_CHECK(before.fordblks - after.fordblks == after.uordblks - before.uordblks);
  BP_PROBE_CHECK(after.ordblks > 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
  BP_PROBE_CHECK(narrow.arena == int{kHeapBytes});
  BP_PROBE_CHECK(static_cast<size_t>(narrow.uordblks) == after.uordblks);

  test::StderrCapture capture;
  malloc_stats();
  const std::string told = capture.text();
  capture.finish();
  char line[64];
  std::snprintf(line, sizeof line, "system bytes     = %10llu\n",
                static_cast<unsigned long long>(kHeapBytes));
  BP_PROBE_CHECK(told.find(line) != std::string::npos);
  BP_PROBE_CHECK(told.find("in use bytes     = ") != std::string::npos);

  std::free(one);  // its neighbours stay, so that its size has a free block
  static char text[16384];
  std::FILE* stream = fmemopen(text, sizeof text, "w");
  BP_PROBE_CHECK(stream != nullptr);
  BP_PROBE_CHECK(malloc_info(1, stream) == EINVAL);
  BP_PROBE_CHECK(malloc_info(0, stream) == 0);
  std::fclose(stream);
  const std::string_view description = text;
  BP_PROBE_CHECK(description.starts_with("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n"));
  BP_PROBE_CHECK(description.ends_with("</malloc>\n"));
  BP_PROBE_CHECK(description.find("<system type=\"current\" size=\"62914560\"/>") !=
                 std::string_view::npos);
  BP_PROBE_CHECK(description.find("  <size from=\"10240\" to=\"10240\" total=\"") !=
                 std::string_view::npos);
}

TEST(HeapReport, StatisticsTellWhatTheHeapKnows) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HeapTellsOfItself, "BEDPLATE_BOOT_BYTES=64 MiB");
}

TEST(HeapReport, IsCutOffWhereItsBufferIsTooSmall) {
  BP_SKIP_UNDER_SANITIZER();
  char text[40];
  LONGS_EQUAL(sizeof text - 1, std::strlen(describe_heap(text, sizeof text)));
  LONGS_EQUAL(sizeof text - 1, std::strlen(format_heap_statistics({}, text, sizeof text)));
}

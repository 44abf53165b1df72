// The place of a crash in an appliance. tests/system/crash_test.py crashes whole appliances.
#include "apps/boot/appliance_crash.h"

#include <atomic>
#include <csignal>
#include <string>

#include "alloc/heap_owner.h"
#include "platform/thread_stack.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string place() {
  char text[192];
  TextWriter writer(text);
  write_crash_place(writer);
  return {text, writer.bytes()};
}

HeapOwner owner_of(const char* name) {
  auto owner = heap_owner(OwnerName("heap", name));
  BP_PROBE_CHECK(owner.ok());
  return owner.value();
}

// Waits until the thread has its name.
void crash_as_till(void* has_name) noexcept {
  static_cast<std::atomic<bool>*>(has_name)->wait(false);
  this_thread_is_shard("main");
  const HeapOwnerScope scope(owner_of("till"));
  raise(SIGFPE);
}

}  // namespace

TEST_GROUP(ApplianceCrash){};

BP_PROBE(PlacesOfACrash) {
  BP_PROBE_CHECK(place().empty());
  {
    const HeapOwnerScope scope(owner_of("till"));
    BP_PROBE_CHECK(place() == ", service till");
  }
  this_thread_is_shard("main");
  BP_PROBE_CHECK(place() == ", shard main");
  {
    const HeapOwnerScope scope(kRuntimeOwner);
    BP_PROBE_CHECK(place() == ", shard main");
  }
  const HeapOwnerScope scope(owner_of("till"));
  BP_PROBE_CHECK(place() == ", shard main, service till");
}
TEST(ApplianceCrash, HasAShardAndAServiceAsFarAsThereAreAny) { BP_CHECK_PROBE(PlacesOfACrash); }

BP_PROBE(CrashOfAShard) {
  signal(SIGFPE, SIG_DFL);  // a sanitizer has a handler there
  catch_appliance_crashes();
  StackedThread shard;
  std::atomic<bool> has_name{false};
  BP_PROBE_CHECK(shard.start("main", &crash_as_till, &has_name).ok());
  has_name.store(true);
  has_name.notify_one();
  shard.join();
}
TEST(ApplianceCrash, IsLoggedWithItsPlaceAndItsCalls) {
  const test::Ended ended = test::run_fresh("CrashOfAShard");
  LONGS_EQUAL(SIGFPE, ended.signal);
  CHECK_TEXT(ended.said("bedplate: error: crash: signal 8 (FPE) in thread main, shard main, "
                        "service till, build "),
             ended.text);
  CHECK_TEXT(ended.said("bedplate: error:   called from "), ended.text);
}

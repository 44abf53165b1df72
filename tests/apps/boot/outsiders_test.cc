// Outsiders: which processes are outsiders, which segments they may write, and how the plan keeps
// these segments from doing harm.
#include "apps/boot/outsiders.h"

#include <string>

#include <unistd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Outsiders) {
  Configuration configuration;
  ProcessSettings worker;    // trusted, of this user
  ProcessSettings guest;     // trusted, of another user
  ProcessSettings stranger;  // not trusted

  void setup() override {
    configuration.groups = {{"main", {}}};
    worker.name = "worker";
    worker.user = std::to_string(geteuid());
    guest.name = "guest";
    guest.user = "4711";
    stranger.name = "stranger";
    stranger.user = worker.user;
    stranger.trusted = false;
  }

  // Applies keep_from_outsiders() to one segment, which `owner` names. Returns the text of the
  // error; "": none.
  std::string keep(const char* owner, SegmentRequest* request) {
    configuration.processes = {worker, guest, stranger};
    std::vector<SegmentRequest> segments = {*request};
    segments[0].owner = OwnerName(owner);
    const auto kept = keep_from_outsiders(configuration, &segments);
    *request = segments[0];
    char text[1024];
    return kept.ok() ? "" : format_error(kept.error(), text, sizeof text);
  }
};

TEST(Outsiders, AreThoseOfAnotherUserAndThoseNotTrusted) {
  CHECK_FALSE(is_outsider(configuration, worker));
  CHECK(is_outsider(configuration, guest));
  CHECK(is_outsider(configuration, stranger));
  worker.user = "nobody-of-this-name";
  CHECK(is_outsider(configuration, worker));
}

TEST(Outsiders, WriteTheirOwnAndWhatTheyAreGranted) {
  const auto may = [this](const ProcessSettings& process, const char* segment) {
    return may_write(configuration, process, OwnerName(segment));
  };
  CHECK(may(worker, "heap:worker.0") && may(stranger, "heap:stranger.1"));
  CHECK_FALSE(may(worker, "heap:guest.0"));
  CHECK(may(worker, "fifo:main") && may(guest, "fifo:main"));
  CHECK_FALSE(may(stranger, "fifo:main"));
  CHECK(may(stranger, "exchange:stranger.0"));
  CHECK_FALSE(may(worker, "exchange:worker.0"));
  CHECK_FALSE(may(worker, "volume:ram0"));
  worker.write = {"volume:ram0"};
  CHECK(may(worker, "volume:ram0"));
  worker.read = {"volume:ram1"};
  CHECK_FALSE(may(worker, "volume:ram1"));
}

TEST(Outsiders, WhatTheyWriteHasSmallPagesAndIsNoDevices) {
  SegmentRequest request;
  request.placement.pages = PageWish::kLargest;
  STRCMP_EQUAL("", keep("exchange:stranger.0", &request).c_str());
  CHECK(request.placement.pages == PageWish::k4KiB);
  CHECK_FALSE(request.is_for_devices);
}

TEST(Outsiders, WhatOthersWriteStaysAsItIs) {
  SegmentRequest request;
  request.placement.pages = PageWish::k2MiB;
  STRCMP_EQUAL("", keep("heap:worker.0", &request).c_str());
  CHECK(request.placement.pages == PageWish::k2MiB);
  CHECK(request.is_for_devices);
}

TEST(Outsiders, HugepagesThatAreAskedForAreRefused) {
  guest.write = {"volume:ram0"};
  SegmentRequest request;
  request.placement = {.pages = PageWish::k2MiB, .is_own_wish = true};
  STRCMP_EQUAL("granting volume:ram0 to the process guest: it runs as another user, and could "
               "remove hugepages that the appliance uses; set its pages to \"4 KiB\", or leave "
               "pages out, or name it in read",
               keep("volume:ram0", &request).c_str());
  request.placement.pages = PageWish::k4KiB;
  STRCMP_EQUAL("", keep("volume:ram0", &request).c_str());
}

TEST(Outsiders, ExportsAreRefused) {
  stranger.write = {"export:area"};
  SegmentRequest request;
  STRCMP_CONTAINS(
      "granting export:area to the process stranger: it is not trusted, and could remove pages "
      "that peers access",
      keep("export:area", &request).c_str());
}

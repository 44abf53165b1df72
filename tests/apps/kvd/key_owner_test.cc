// Which shard owns a key: the documented function, by its known values.
#include "apps/kvd/key_owner_datapath.h"

#include <string>
#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate::kvd;

TEST_GROUP(KvdKeyOwner){};

// RFC 3720, appendix B.4, and the check value of CRC-32C.
TEST(KvdKeyOwner, IsThatOfAKnownHash) {
  CHECK_EQUAL(0xe3069283, crc32c("123456789"));
  CHECK_EQUAL(0x8a9136aa, crc32c(std::string(32, '\0')));
  CHECK_EQUAL(0x62a8ab43, crc32c(std::string(32, '\xff')));
  CHECK_EQUAL(0, crc32c(""));
}

TEST(KvdKeyOwner, TheTableSaysTheSame) {
  std::string key;
  for (int i = 0; i < 250; ++i) {
    CHECK_EQUAL(crc32c_by_table(key), crc32c(key));
    key += static_cast<char>(i * 37 + 11);
  }
}

// The value that docs/kvd.md shows.
TEST(KvdKeyOwner, IsAPartOfTheRangeOfHashes) {
  CHECK_EQUAL(0, owner_of("123456789", 1));
  CHECK_EQUAL(1, owner_of("123456789", 2));
  CHECK_EQUAL(3, owner_of("123456789", 4));
  CHECK_EQUAL(56, owner_of("123456789", 64));
}

TEST(KvdKeyOwner, KeysSpreadOverAllShards) {
  for (const uint32_t shard_count : {2U, 3U, 4U, 64U}) {
    std::vector<uint32_t> counts(shard_count);
    const uint32_t key_count = 1000 * shard_count;
    for (uint32_t i = 0; i < key_count; ++i) {
      ++counts[owner_of("user:" + std::to_string(i) + ":profile", shard_count)];
    }
    for (const uint32_t count : counts) CHECK(count > 700 && count < 1300);
  }
}

#include "isoloss/transport/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace isoloss::transport::message_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::byte> Repeated(int value, size_t count) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

TEST(Crc32c, HasTheKnownAnswersOfRfc3720) {
  std::vector<std::byte> ascending;
  std::vector<std::byte> descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<std::byte>(i));
    descending.push_back(static_cast<std::byte>(31 - i));
  }

  EXPECT_EQ(Crc32c(Repeated(0x00, 32)), 0x8A9136AA);
  EXPECT_EQ(Crc32c(Repeated(0xFF, 32)), 0x62A8AB43);
  EXPECT_EQ(Crc32c(ascending), 0x46DD794E);
  EXPECT_EQ(Crc32c(descending), 0x113FDB5C);
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(std::string_view("123456789")))),
            0xE3069283);
  EXPECT_EQ(Crc32c({}), 0u);
}

constexpr MessageHeader kDue = [] {
  MessageHeader header;
  header.kind = OpKind::kDispatch;
  header.run_id = 7;
  header.step = 12;
  header.sequence = 40;
  header.layer = 3;
  header.source = 3;
  header.destination = 1;
  header.rows = 2;
  header.payload_bytes = 10;
  return header;
}();

std::vector<std::byte> Sealed(MessageHeader header) {
  std::vector<std::byte> message(kHeaderBytes + header.payload_bytes);
  for (size_t i = kHeaderBytes; i < message.size(); ++i) {
    message[i] = static_cast<std::byte>(i * 37);
  }
  Seal(header, std::span(message).subspan(kHeaderBytes));
  std::memcpy(message.data(), &header, kHeaderBytes);
  return message;
}

TEST(Message, IsGoodAsItWasSealed) {
  EXPECT_EQ(Problem(Sealed(kDue), kDue), "");
}

TEST(Message, IsDamagedWhicheverBitIsFlipped) {
  const std::vector<std::byte> intact = Sealed(kDue);
  for (size_t bit = 0; bit < 8 * intact.size(); ++bit) {
    std::vector<std::byte> message = intact;
    message[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);

    EXPECT_THAT(Problem(message, kDue),
                StartsWith(bit < 8 * kHeaderBytes
                               ? "damaged on the way: header CRC32C is 0x"
                               : "damaged on the way: payload CRC32C is 0x"));
  }
}

struct WrongField {
  const char* text;  // of the explanation
  void (*change)(MessageHeader& header);
};

TEST(Message, IsWrongIfAnIntactHeaderIsNotTheOneDue) {
  const WrongField fields[] = {
      {"magic is 0x464F5349",
       [](MessageHeader& h) { h.magic = Magic::kFrame; }},
      {"version 2, but this program has version 1",
       [](MessageHeader& h) { h.version = 2; }},
      {"rank 3 is in step 12, combine, MoE layer 3 (operation 40), you are in "
       "step 12, dispatch, MoE layer 3 (operation 40)",
       [](MessageHeader& h) { h.kind = OpKind::kCombine; }},
      {"run 0000000000000008", [](MessageHeader& h) { h.run_id = 8; }},
      {"rank 3 is in step 13", [](MessageHeader& h) { h.step = 13; }},
      {"(operation 41), you are in", [](MessageHeader& h) { h.sequence = 41; }},
      {"a stale message", [](MessageHeader& h) { h.sequence = 39; }},
      {"MoE layer 2", [](MessageHeader& h) { h.layer = 2; }},
      {"hop 1", [](MessageHeader& h) { h.hop = 1; }},
      {"goes from 4 to 1", [](MessageHeader& h) { h.source = 4; }},
      {"goes from 3 to 0", [](MessageHeader& h) { h.destination = 0; }},
      {"3 rows in 10 bytes, but 2 rows in 10 bytes",
       [](MessageHeader& h) { h.rows = 3; }},
      {"2 rows in 11 bytes", [](MessageHeader& h) { h.payload_bytes = 11; }},
  };
  for (const WrongField& field : fields) {
    MessageHeader header = kDue;
    field.change(header);
    const std::vector<std::byte> message = Sealed(header);

    EXPECT_THAT(Problem(message, kDue),
                AllOf(HasSubstr(field.text), Not(HasSubstr("damaged"))));
  }
}

TEST(Message, IsNotGoodIfCutShort) {
  const std::vector<std::byte> message = Sealed(kDue);
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    const auto part = std::span(message).first(bytes);
    EXPECT_THAT(Problem(part, kDue),
                AllOf(StartsWith("damaged on the way"), HasSubstr("bytes")));
  }
}

}  // namespace
}  // namespace isoloss::transport::message_test

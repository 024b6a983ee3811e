#include "isoloss/foreign/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "event_file_bytes.h"
#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"

namespace isoloss::foreign::event_file_test {
namespace {

using test_support::EventOf;
using test_support::Fp32;
using test_support::Fp32Bytes;
using test_support::Fp64;
using test_support::Fp64Bytes;
using test_support::Plugin;
using test_support::Record;
using test_support::SimpleEvent;
using test_support::TensorEvent;
using test_support::Text;
using test_support::VersionRecord;
using test_support::Whole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kFloat = 1;
constexpr uint64_t kDouble = 2;

std::vector<double> ValuesOf(const EventFile& file, const std::string& tag) {
  std::vector<double> values;
  const auto found = file.series.find(tag);
  if (found == file.series.end()) return values;
  for (const EventScalar& point : found->second) values.push_back(point.value);
  return values;
}

std::vector<int64_t> StepsOf(const EventFile& file, const std::string& tag) {
  std::vector<int64_t> steps;
  const auto found = file.series.find(tag);
  if (found == file.series.end()) return steps;
  for (const EventScalar& point : found->second) steps.push_back(point.step);
  return steps;
}

std::string ErrorOf(const std::string& bytes) {
  try {
    ParseEventFile(bytes, "events");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    return error.what();
  }
  return "no error";
}

TEST(EventFile, HoldsBothSpellingsOfAScalar) {
  const std::string fp32 = Whole(1, kFloat) + Text(2, "");
  const std::string fp64 = Whole(1, kDouble) + Text(2, "");
  const EventFile file = ParseEventFile(
      VersionRecord() + SimpleEvent(1, "simple", 4.8264098F) +
          TensorEvent(2, "tensor", fp32 + Text(4, Fp32Bytes(0.1F))) +
          TensorEvent(3, "tensor", fp32 + Fp32(5, 0.2F)) +
          TensorEvent(4, "tensor", fp32 + Text(5, Fp32Bytes(0.3F))) +
          TensorEvent(5, "tensor", fp64 + Text(4, Fp64Bytes(0.4))) +
          TensorEvent(6, "tensor", fp64 + Fp64(6, 0.5)) +
          TensorEvent(7, "tensor", fp64 + Text(6, Fp64Bytes(0.6))),
      "events");

  EXPECT_EQ(file.note, "");
  EXPECT_EQ(file.records, 8u);
  EXPECT_EQ(file.lost_bytes, 0u);
  EXPECT_THAT(file.series.at("simple"),
              ElementsAre(EventScalar{1, 1.5, double{4.8264098F}}));
  EXPECT_THAT(
      ValuesOf(file, "tensor"),
      ElementsAre(double{0.1F}, double{0.2F}, double{0.3F}, 0.4, 0.5, 0.6));
  EXPECT_THAT(StepsOf(file, "tensor"), ElementsAre(2, 3, 4, 5, 6, 7));
}

/// Written by Google's protobuf 3.21.12 (Debian 12's python3-protobuf) from
/// messages of event.proto, summary.proto and tensor.proto: all spellings of a
/// scalar, at steps 0, -7 and 1 to 6, each at the time 1700000000.25.
constexpr std::string_view kByProtobuf =
    "1d00000000000000602fdf230900001040fc54d9411a0d627261696e2e4576656e743a32"
    "52030a0177e58be2bc1a00000000000000129bd82d0900001040fc54d9412a0f0a0d0a06"
    "73696d706c6515000000005c2f45702500000000000000eabc36f30900001040fc54d941"
    "10f9ffffffffffffffff012a0f0a0d0a0673696d706c6515f3719a402ec1513236000000"
    "000000004f578cef0900001040fc54d94110012a290a270a0674656e736f72420a080112"
    "0022040000c03f4a110a090a077363616c61727312046c6f737372a97d96360000000000"
    "00004f578cef0900001040fc54d94110022a290a270a0674656e736f72420a080112002a"
    "04000020404a110a090a077363616c61727312046c6f7373702faabd3a00000000000000"
    "1295eae20900001040fc54d94110032a2d0a2b0a0674656e736f72420e0802120032089a"
    "9999999999b93f4a110a090a077363616c61727312046c6f73733708b9753a0000000000"
    "00001295eae20900001040fc54d94110042a2d0a2b0a0674656e736f72420e0802120022"
    "089a9999999999c93f4a110a090a077363616c61727312046c6f7373e23d37b735000000"
    "00000000d6c55de60900001040fc54d94110052a280a260a0674656e736f724a110a090a"
    "077363616c61727312046c6f73734209080112002d00006040e8fea2f139000000000000"
    "008b0737f10900001040fc54d94110062a2c0a2a0a0674656e736f724a110a090a077363"
    "616c61727312046c6f7373420d0802120031333333333333d33f0f4c8de4";

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    const std::string byte(hex.substr(i, 2));
    bytes += static_cast<char>(std::stoi(byte, nullptr, 16));
  }
  return bytes;
}

TEST(EventFile, OfProtobufsOwnBytesIsRead) {
  constexpr double kTime = 1'700'000'000.25;
  const EventFile file = ParseEventFile(FromHex(kByProtobuf), "events");

  EXPECT_EQ(file.note, "");
  EXPECT_EQ(file.records, 9u);
  EXPECT_THAT(file.series.at("simple"),
              ElementsAre(EventScalar{0, kTime, 0},
                          EventScalar{-7, kTime, 4.826409816741943}));
  EXPECT_THAT(
      file.series.at("tensor"),
      ElementsAre(EventScalar{1, kTime, 1.5}, EventScalar{2, kTime, 2.5},
                  EventScalar{3, kTime, 0.1}, EventScalar{4, kTime, 0.2},
                  EventScalar{5, kTime, 3.5}, EventScalar{6, kTime, 0.3}));
}

TEST(EventFile, KeepsStepsThatAreZeroNegativeOrLarge) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  std::string bytes = VersionRecord();
  for (const int64_t step : {int64_t{0}, int64_t{-1}, kLeast, kMost}) {
    bytes += SimpleEvent(step, "loss", 0.0F);
  }

  const EventFile file = ParseEventFile(bytes, "events");

  EXPECT_THAT(StepsOf(file, "loss"), ElementsAre(0, -1, kLeast, kMost));
  EXPECT_THAT(ValuesOf(file, "loss"), ElementsAre(0, 0, 0, 0));
}

TEST(EventFile, KeepsWhatIsNotFinite) {
  const EventFile file = ParseEventFile(SimpleEvent(1, "loss", INFINITY) +
                                            SimpleEvent(2, "loss", -INFINITY) +
                                            SimpleEvent(3, "loss", NAN),
                                        "events");

  const std::vector<double> values = ValuesOf(file, "loss");
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0], INFINITY);
  EXPECT_EQ(values[1], -INFINITY);
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(EventFile, TakesFieldsInAnyOrderAndSeveralValues) {
  const std::string values = Text(1, Fp32(2, 1.0F) + Text(1, "a")) +
                             Text(1, Text(1, "b") + Fp32(2, 2.0F));
  const EventFile file = ParseEventFile(
      Record(Text(5, values) + Whole(77, 5) + Whole(2, 9) + Fp64(1, 2.5)),
      "events");

  EXPECT_THAT(file.series.at("a"), ElementsAre(EventScalar{9, 2.5, 1}));
  EXPECT_THAT(file.series.at("b"), ElementsAre(EventScalar{9, 2.5, 2}));
}

TEST(EventFile, KnowsAPluginFromTheTagsFirstValue) {
  const std::string tensor = Whole(1, kFloat) + Fp32(5, 3.0F);
  const EventFile file =
      ParseEventFile(TensorEvent(1, "loss", tensor) +
                         EventOf(2, Text(1, "loss") + Text(8, tensor)) +
                         EventOf(3, Text(1, "other") + Text(8, tensor)),
                     "events");

  EXPECT_THAT(StepsOf(file, "loss"), ElementsAre(1, 2));
  EXPECT_THAT(StepsOf(file, "other"), IsEmpty());
}

TEST(EventFile, LeavesOutWhatIsNoScalar) {
  const std::string three = Fp32(5, 1.0F) + Fp32(5, 2.0F) + Fp32(5, 3.0F);
  const std::string two_rows = Text(2, Text(2, Whole(1, 2)));
  const std::string one_row = Text(2, Text(2, Whole(1, 1)));
  const std::string one = Whole(1, kFloat) + Fp32(5, 1.0F);
  const EventFile file = ParseEventFile(
      VersionRecord() + Record(Text(4, std::string(100'000, 'g'))) +
          EventOf(1, Text(1, "_hparams_/experiment") + Plugin("hparams")) +
          TensorEvent(1, "histogram", one, "histograms") +
          EventOf(1, Text(1, "image") + Text(4, "png")) +
          TensorEvent(1, "three", Whole(1, kFloat) + three) +
          TensorEvent(1, "two", one + two_rows) +
          TensorEvent(1, "text", Whole(1, 7) + Text(8, "words")) +
          TensorEvent(1, "long", Whole(1, kFloat) + Text(4, "12345678")) +
          TensorEvent(1, "scalar", one + one_row),
      "events");

  EXPECT_EQ(file.series.size(), 1u);
  EXPECT_THAT(ValuesOf(file, "scalar"), ElementsAre(1));
  EXPECT_EQ(file.other_tensors, 4u);
  EXPECT_THAT(file.note, HasSubstr("4 values of the plugin scalars"));
}

TEST(EventFile, OfTheVersionOnlyIsAnEmptyRun) {
  const EventFile version = ParseEventFile(VersionRecord(), "events");
  const EventFile nothing = ParseEventFile("", "events");

  EXPECT_EQ(version.records, 1u);
  EXPECT_THAT(version.series, IsEmpty());
  EXPECT_EQ(version.note, "");
  EXPECT_EQ(nothing.records, 0u);
  EXPECT_EQ(nothing.note, "");
}

TEST(EventFile, CutAnywhereKeepsItsWholeRecords) {
  std::vector<std::string> records = {VersionRecord()};
  for (int step = 1; step <= 3; ++step) {
    records.push_back(SimpleEvent(step, "loss", 2.0F));
  }
  std::string all;
  std::vector<size_t> ends;
  for (const std::string& record : records) {
    all += record;
    ends.push_back(all.size());
  }

  for (size_t size = 0; size <= all.size(); ++size) {
    size_t whole = 0;
    while (whole < ends.size() && ends[whole] <= size) ++whole;
    const size_t kept = whole == 0 ? 0 : ends[whole - 1];
    const EventFile file = ParseEventFile(all.substr(0, size), "events");

    EXPECT_EQ(file.records, whole) << size;
    EXPECT_EQ(ValuesOf(file, "loss").size(), whole < 2 ? 0 : whole - 1);
    EXPECT_EQ(file.lost_bytes, size - kept) << size;
    EXPECT_EQ(file.note.empty(), size == kept) << size;
  }
  EXPECT_EQ(ParseEventFile(all.substr(0, all.size() - 1), "events").note,
            "events: the file ends within record 4, as that of a live or "
            "killed run: the last " +
                std::to_string(records[3].size() - 1) + " of " +
                std::to_string(all.size() - 1) + " bytes were not read.");
}

TEST(EventFile, WithAWrongByteIsReadUpToItsRecord) {
  const std::string before = VersionRecord() + SimpleEvent(1, "loss", 2.0F);
  const std::string damaged = SimpleEvent(2, "loss", 3.0F);
  const std::string behind = SimpleEvent(3, "loss", 4.0F);

  for (size_t at = 0; at < damaged.size(); ++at) {
    std::string bytes = before + damaged + behind;
    bytes[before.size() + at] =
        static_cast<char>(bytes[before.size() + at] ^ 0x10);
    const EventFile file = ParseEventFile(bytes, "events");

    EXPECT_THAT(StepsOf(file, "loss"), ElementsAre(1)) << at;
    EXPECT_EQ(file.lost_bytes, damaged.size() + behind.size()) << at;
    EXPECT_THAT(
        file.note,
        HasSubstr("the " + std::string(at < 12 ? "length" : "content") +
                  " of record 3, at byte " + std::to_string(before.size())))
        << at;
  }
}

TEST(EventFile, RecordsThatAreNoEventsAreCounted) {
  const EventFile file = ParseEventFile(
      VersionRecord() + Record("\x09short") + SimpleEvent(1, "loss", 2.0F),
      "events");

  EXPECT_THAT(StepsOf(file, "loss"), ElementsAre(1));
  EXPECT_THAT(file.note, HasSubstr("1 of 3 records are no events"));
}

TEST(EventFile, OtherFilesAreRefused) {
  EXPECT_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\noid x\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(ErrorOf("step,loss\n1,2.5\n"), HasSubstr("first 12 bytes"));
  EXPECT_THAT(ErrorOf(std::string(1000, '\0')), HasSubstr("first 12 bytes"));
}

TEST(EventFile, IsKnownByItsFirstBytes) {
  const std::string file = VersionRecord();

  EXPECT_FALSE(LooksLikeEventFile(""));
  EXPECT_FALSE(LooksLikeEventFile(file.substr(0, 11)));
  for (size_t size = 12; size <= file.size(); ++size) {
    EXPECT_TRUE(LooksLikeEventFile(file.substr(0, size))) << size;
  }
  EXPECT_FALSE(LooksLikeEventFile("step,loss,grad_norm\n"));
  EXPECT_FALSE(LooksLikeEventFile(std::string(100, '\0')));
  EXPECT_FALSE(LooksLikeEventFile(Record(Text(1, "features"))))
      << "a data set of tf.Example";
}

class EventFileOnDisk : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& bytes) {
    const std::filesystem::path path = folder_.path() / "events";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  TemporaryFolder folder_;
};

// Records larger than a window of 4 MiB, and ones that lie across its ends.
TEST_F(EventFileOnDisk, IsReadAsItsContentIs) {
  std::string bytes = VersionRecord();
  bytes += Record(Text(4, std::string(10'000'000, 'g')));
  for (int step = 0; step < 100'000; ++step) {
    bytes += SimpleEvent(step, step % 2 == 0 ? "loss" : "lr", 0.5F);
  }
  for (const size_t cut : {size_t{0}, size_t{5}}) {
    const std::string part = bytes.substr(0, bytes.size() - cut);
    const std::filesystem::path path = Write(part);

    const EventFile read = ReadEventFile(path);
    const EventFile parsed = ParseEventFile(part, path.string());

    EXPECT_EQ(read.series, parsed.series);
    EXPECT_EQ(read.records, parsed.records);
    EXPECT_EQ(read.lost_bytes, parsed.lost_bytes);
    EXPECT_EQ(read.note, parsed.note);
    EXPECT_EQ(read.series.at("lr").size(), cut == 0 ? 50'000u : 49'999u);
  }
}

TEST_F(EventFileOnDisk, WithDamageSaysHowMuchIsLost) {
  std::string bytes = VersionRecord() + SimpleEvent(1, "loss", 0.5F);
  const size_t sound = bytes.size();
  bytes += std::string(20'000'000, 'x');

  const EventFile file = ReadEventFile(Write(bytes));

  EXPECT_EQ(file.records, 2u);
  EXPECT_EQ(file.lost_bytes, bytes.size() - sound);
}

TEST_F(EventFileOnDisk, WithAForgedLengthTakesNoMemory) {
  const std::string length = test_support::Little(uint64_t{1} << 60, 8);
  const std::string head =
      length + test_support::Little(test_support::PlainMaskedCrc(length), 4);

  const EventFile file = ReadEventFile(Write(head + "some bytes"));

  EXPECT_EQ(file.records, 0u);
  EXPECT_EQ(file.lost_bytes, head.size() + 10);
}

TEST_F(EventFileOnDisk, MissingOrAFolderIsRefused) {
  EXPECT_THROW(ReadEventFile("missing/events"), Error);
  EXPECT_THROW(ReadEventFile(std::filesystem::temp_directory_path()), Error);
}

TEST(MergeEventFiles, LetsTheLaterFileWin) {
  const auto file = [](std::vector<std::pair<int64_t, float>> points) {
    std::string bytes = VersionRecord();
    for (const auto& [step, value] : points) {
      bytes += SimpleEvent(step, "loss", value);
    }
    return ParseEventFile(bytes, "events");
  };
  const EventFile run =
      MergeEventFiles({file({{10, 1}, {20, 2}, {30, 3}}),
                       file({{30, 4}, {40, 5}}), file({{30, 6}, {30, 7}})});

  EXPECT_THAT(StepsOf(run, "loss"), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(ValuesOf(run, "loss"), ElementsAre(1, 2, 7, 5));
  EXPECT_EQ(run.records, 10u);
  EXPECT_EQ(run.repeated_steps, 3u);
  EXPECT_EQ(run.note,
            "3 values of 3 files are of steps that were written again later, "
            "as by a resumed run (loss): the later ones count.");
}

TEST(MergeEventFiles, OfFilesThatAbutHasNoNote) {
  const EventFile run =
      MergeEventFiles({ParseEventFile(SimpleEvent(1400, "loss", 1), "a"),
                       ParseEventFile("", "b"),
                       ParseEventFile(SimpleEvent(1450, "loss", 2), "c")});

  EXPECT_THAT(StepsOf(run, "loss"), ElementsAre(1400, 1450));
  EXPECT_EQ(run.repeated_steps, 0u);
  EXPECT_EQ(run.note, "");
  EXPECT_THAT(MergeEventFiles({}).series, IsEmpty());
}

TEST(MergeEventFiles, KeepsWhatIsSaidOfEachFile) {
  const std::string bytes = SimpleEvent(1, "loss", 1);
  const EventFile run =
      MergeEventFiles({ParseEventFile(bytes + "ab", "first"),
                       ParseEventFile(bytes + "c", "second")});

  EXPECT_EQ(run.lost_bytes, 3u);
  EXPECT_THAT(run.note, HasSubstr("first: the file ends within record 2"));
  EXPECT_THAT(run.note, HasSubstr("second: the file ends within record 2"));
}

}  // namespace
}  // namespace isoloss::foreign::event_file_test

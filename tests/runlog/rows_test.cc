#include "isoloss/runlog/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "runlog/sample_log.h"

namespace isoloss::runlog::rows_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The message of the error of kind `kind` that `call` throws.
template <typename Call>
std::string ErrorOf(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(AppendRows, MakesTheWholeLogOfWhatItsStepsAdd) {
  RunLog log;
  log.provenance = SampleLog().provenance;

  for (int64_t step = 1; step <= 5; ++step) AppendRows(SampleRows(step), log);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleLog()));
  EXPECT_EQ(EncodeRows(log), EncodeRows(SampleLog()));
}

TEST(AppendRows, ReplacesTheBytesOfPairs) {
  RunLog log = SampleRows(1);
  AppendRows(SampleRows(2), log);
  RunLog rows;
  rows.exchange.ranks = 4;
  rows.exchange.bytes_by_pair.assign(16, 7);

  AppendRows(rows, log);

  EXPECT_EQ(log.exchange.bytes_by_pair, std::vector<int64_t>(16, 7));
  EXPECT_THAT(log.exchange.step, ElementsAre(1, 2));
}

TEST(AppendRows, LeavesTheLogAloneWhenRowsDoNotFit) {
  const RunLog before = SampleLog();
  const auto refused = [&](auto change) {
    RunLog log = before;
    RunLog rows = SampleRows(1);
    change(rows);
    const std::string message =
        ErrorOf(ErrorKind::kShape, [&] { AppendRows(rows, log); });
    EXPECT_EQ(EncodeRows(log), EncodeRows(before));
    return message;
  };

  EXPECT_THAT(refused([](RunLog& rows) { rows.parameters.names[1] = "other"; }),
              HasSubstr("label 1 of /parameters/names is `other` in new rows, "
                        "but `layers.0.größe` in the log"));
  EXPECT_THAT(refused([](RunLog& rows) { rows.moe.experts = 41; }),
              HasSubstr("41 experts in new rows, but 40 in the log"));
  EXPECT_THAT(refused([](RunLog& rows) { rows.steps.lr.clear(); }),
              HasSubstr("/steps/lr is in the log, but not in new rows"));
  EXPECT_THAT(refused([](RunLog& rows) {
                rows.tensors.statistics[kStat_sum] = {1, 2};
              }),
              HasSubstr("/tensors/sum is in new rows, but not in the log"));
  EXPECT_THAT(refused([](RunLog& rows) { rows.moe.expert_ids.pop_back(); }),
              HasSubstr("/moe/expert_ids has 11 values, but its rows need 12"));
  EXPECT_THAT(
      refused([](RunLog& rows) { rows.exchange.bytes_by_pair.assign(15, 0); }),
      HasSubstr("bytes_by_pair has 15 values, but its rows need 16"));
}

TEST(CheckSize, RefusesWhatAReaderWould) {
  RunLog log = SampleLog();
  KeepRowsUpTo(2, log);
  const RunLog rows = SampleRows(4);
  // One of two steps with statistics of two tensors.
  constexpr int64_t kHeld = TensorValuesPerStep(2);
  ASSERT_EQ(log.tensors.e8m0_histogram.size(), size_t{kHeld});
  ASSERT_EQ(rows.tensors.e8m0_histogram.size(), size_t{kHeld});

  CheckSize(rows, log, 2 * kHeld);
  EXPECT_THAT(
      ErrorOf(ErrorKind::kConfig, [&] { CheckSize(rows, log, 2 * kHeld - 1); }),
      AllOf(HasSubstr("/tensors/e8m0_histogram would have 1024 values"),
            HasSubstr("may hold 1023"), HasSubstr("log.statistics_every")));
  EXPECT_THAT(ErrorOf(ErrorKind::kConfig, [&] { CheckSize({}, log, 1); }),
              HasSubstr("/steps/step would have 2 values"));
}

TEST(CheckSize, CountsAllDatasetsTogether) {
  ::setenv("ISOLOSS_MEMORY_MIB", "1", 1);
  RunLog log;
  log.steps.step.resize(1 << 16);
  CheckSize(SampleRows(1), log);
  log.steps.lr.resize(1 << 16);

  EXPECT_THAT(
      ErrorOf(ErrorKind::kConfig, [&] { CheckSize(SampleRows(1), log); }),
      AllOf(HasSubstr("MiB of values"), HasSubstr("may hold 1 MiB"),
            HasSubstr("ISOLOSS_MEMORY_MIB")));
  ::unsetenv("ISOLOSS_MEMORY_MIB");
}

/// An array whose zeros are left out says much in few bytes.
TEST(DecodeRows, RefusesMoreThanALogMayHold) {
  RunLog rows = SampleLog();
  const int64_t others = static_cast<int64_t>(rows.moe.step.size()) *
                         rows.moe.layers * rows.moe.top_k;
  rows.moe.tokens = (int64_t{1} << 20) / others;
  rows.moe.expert_ids.assign(static_cast<size_t>(others * rows.moe.tokens), 0);
  const std::vector<std::byte> bytes = EncodeRows(rows);
  ASSERT_LT(bytes.size(), size_t{1} << 18);
  EXPECT_EQ(DecodeRows(bytes).moe.expert_ids, rows.moe.expert_ids);
  ::setenv("ISOLOSS_MEMORY_MIB", "2", 1);

  EXPECT_THAT(ErrorOf(ErrorKind::kFormat, [&] { DecodeRows(bytes); }),
              HasSubstr("the record holds more than 2 MiB"));
  ::unsetenv("ISOLOSS_MEMORY_MIB");
}

TEST(KeepRowsUpTo, LeavesWhatTheFirstStepsAdded) {
  for (int64_t last = 1; last <= 5; ++last) {
    RunLog expected;
    for (int64_t step = 1; step <= last; ++step) {
      AppendRows(SampleRows(step), expected);
    }
    RunLog log = SampleLog();
    log.provenance = {};

    KeepRowsUpTo(last, log);

    EXPECT_EQ(DumpLines(log), DumpLines(expected)) << last;
  }
}

TEST(DropRowsOf, LeavesWhatTheLogLacks) {
  RunLog log = SampleLog();
  KeepRowsUpTo(3, log);
  RunLog rows = SampleLog();
  rows.events.clear();

  DropRowsOf(log, rows);

  EXPECT_THAT(rows.steps.step, ElementsAre(4, 5));
  EXPECT_THAT(rows.parameters.step, ElementsAre(4));
  EXPECT_THAT(rows.moe.step, IsEmpty());
  EXPECT_THAT(rows.tensors.names, IsEmpty());
  EXPECT_THAT(rows.exchange.bytes_by_pair, IsEmpty());
  EXPECT_FALSE(HasNoRows(rows));
  AppendRows(rows, log);
  rows = SampleLog();
  rows.events.clear();
  DropRowsOf(log, rows);
  EXPECT_TRUE(HasNoRows(rows));
}

TEST(EncodeRows, KeepsEveryBit) {
  RunLog log = SampleLog();
  // A signalling NaN with a payload, -0 and the smallest subnormal.
  log.steps.loss_nats[0] = std::bit_cast<double>(0xFFF4'0000'DEAD'BEEF);
  log.steps.loss_nats[1] = -0.0;
  log.steps.loss_nats[2] = std::numeric_limits<double>::denorm_min();

  const RunLog copy = DecodeRows(EncodeRows(log));

  EXPECT_EQ(std::memcmp(copy.steps.loss_nats.data(), log.steps.loss_nats.data(),
                        5 * sizeof(double)),
            0);
  EXPECT_EQ(EncodeRows(copy), EncodeRows(log));
  log.provenance = {};
  EXPECT_EQ(DumpLines(copy), DumpLines(log));
}

/// Statistics of one step: histograms with a few blocks in a few places.
RunLog SparseRows(int64_t tensors) {
  RunLog rows;
  rows.tensors.step = {7};
  rows.tensors.count = tensors;
  rows.tensors.scale_bytes = kScaleBytes;
  for (int64_t i = 0; i < tensors; ++i) {
    rows.tensors.names.push_back(std::to_string(i));
    rows.tensors.digest.push_back(i);
  }
  const auto values = static_cast<size_t>(TensorValuesPerStep(tensors));
  rows.tensors.e8m0_histogram.assign(values, 0);
  rows.tensors.e8m0_histogram_columnwise.assign(values, 0);
  for (size_t i = 120; i < values; i += kScaleBytes) {
    rows.tensors.e8m0_histogram[i] = 1 + static_cast<int32_t>(i);
    rows.tensors.e8m0_histogram[i + 1] = -2;
  }
  return rows;
}

TEST(EncodeRows, StoresMostlyEmptyHistogramsInLittleSpace) {
  for (const int64_t tensors : {1, 15, 16, 17, 32, 221}) {
    const RunLog rows = SparseRows(tensors);

    const auto bytes = EncodeRows(rows);

    // 12 bytes for each of two places a tensor, and in both histograms for one
    // of 4096 places; less than 300 for all else but names and digests.
    const auto count = static_cast<size_t>(tensors);
    const size_t entries = 2 * count + 2 * (count * kScaleBytes / 4096);
    EXPECT_LT(bytes.size(), 12 * entries + 300 + count * (8 + 3 + 8));
    const RunLog copy = DecodeRows(bytes);
    EXPECT_EQ(copy.tensors.e8m0_histogram, rows.tensors.e8m0_histogram);
    EXPECT_EQ(copy.tensors.e8m0_histogram_columnwise,
              rows.tensors.e8m0_histogram_columnwise);
    EXPECT_EQ(EncodeRows(copy), bytes);
  }
}

/// There are no two encodings of a log, but that control characters of a text
/// are escaped when it is read, which makes it longer, once.
void ExpectEncodedAgain(const std::vector<std::byte>& bytes) {
  const auto again = EncodeRows(DecodeRows(bytes));
  if (again == bytes) return;
  EXPECT_GT(again.size(), bytes.size());
  EXPECT_EQ(EncodeRows(DecodeRows(again)), again);
}

TEST(DecodeRows, RefusesOrEncodesAgainSparseRowsWithAnyBitFlipped) {
  const auto whole = EncodeRows(SparseRows(17));
  for (size_t place = 0; place < whole.size(); ++place) {
    EXPECT_THROW(DecodeRows(std::span(whole).first(place)), Error) << place;
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = whole;
      bytes[place] ^= std::byte{1} << bit;
      try {
        ExpectEncodedAgain(bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      }
    }
  }
}

// 2^27 zeros need 2^15 named places, and so 12 * 2^15 bytes.
TEST(DecodeRows, AllocatesNothingForForgedAxesOfSparseRows) {
  RunLog rows = SparseRows(1);
  rows.tensors.names.clear();
  rows.tensors.digest.clear();
  auto bytes = EncodeRows(rows);
  // Behind the histogram's axes, 1 and 256, the number of its entries, 2.
  const uint64_t axes[] = {1, kScaleBytes, 2};
  const auto* begin = reinterpret_cast<const std::byte*>(axes);
  const auto found =
      std::search(bytes.begin(), bytes.end(), begin, begin + sizeof(axes));
  ASSERT_NE(found, bytes.end());
  const uint64_t forged[] = {uint64_t{1} << 19};
  std::memcpy(&*found, forged, sizeof(forged));

  EXPECT_THAT(ErrorOf(ErrorKind::kFormat, [&] { DecodeRows(bytes); }),
              HasSubstr("2 entries of 134217728 values"));
}

TEST(EncodeProvenance, KeepsEveryField) {
  RunLog copy;

  copy.provenance = DecodeProvenance(EncodeProvenance(SampleLog().provenance));

  RunLog expected;
  expected.provenance = SampleLog().provenance;
  EXPECT_EQ(DumpLines(copy), DumpLines(expected));
}

TEST(DecodeRows, RefusesEveryCut) {
  const auto bytes = EncodeRows(SampleRows(1));

  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(DecodeRows(std::span(bytes).first(length)), Error) << length;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(ErrorOf(ErrorKind::kFormat, [&] { DecodeRows(longer); }),
              HasSubstr("followed by 1 bytes"));
}

TEST(DecodeProvenance, RefusesEveryCut) {
  Provenance provenance = SampleLog().provenance;
  provenance.resolved_recipe = "short";
  const auto bytes = EncodeProvenance(provenance);

  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(DecodeProvenance(std::span(bytes).first(length)), Error)
        << length;
  }
}

// What is accepted is what EncodeRows writes of it: no two encodings of a log.
TEST(DecodeRows, RefusesOrEncodesAgainWhatRandomFlipsLeave) {
  const auto whole = EncodeRows(SampleRows(1));
  const CounterRng rng(22, StreamId("flips of rows"));
  int accepted = 0;

  for (uint64_t trial = 0; trial < 5000; ++trial) {
    auto bytes = whole;
    for (uint64_t flip = 0; flip <= trial % 4; ++flip) {
      const uint64_t place = rng.Below(8 * trial + flip, bytes.size());
      bytes[place] ^= std::byte{1} << rng.Below(8 * trial + flip + 4, 8);
    }
    try {
      ExpectEncodedAgain(bytes);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    }
  }

  // Most bytes are values, which may be any.
  EXPECT_GT(accepted, 2000);
  EXPECT_LT(accepted, 4999);
}

TEST(DecodeRows, AllocatesNothingForAForgedCount) {
  auto bytes = EncodeRows(RunLog());
  // The first 8 bytes are the rows of /steps.
  for (const uint64_t count :
       {uint64_t{1} << 27, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::memcpy(bytes.data(), &count, sizeof(count));

    EXPECT_THAT(ErrorOf(ErrorKind::kFormat, [&] { DecodeRows(bytes); }),
                HasSubstr("/steps/step at byte 8"));
  }
}

TEST(FirstDifference, IsNoneBetweenEqualLogs) {
  RunLog other = SampleLog();
  other.steps.step_seconds[1] = 9;
  other.steps.tokens_per_second[1] = 9;
  other.exchange.wait_seconds[1] = 9;
  other.events.clear();

  EXPECT_EQ(FirstDifference(SampleLog(), SampleLog()), "");
  EXPECT_EQ(FirstDifference(SampleLog(), other), "");
}

TEST(FirstDifference, ComparesStepsThatBothHave) {
  RunLog log = SampleLog();
  KeepRowsUpTo(3, log);

  EXPECT_EQ(FirstDifference(log, SampleRows(2)), "");
  EXPECT_EQ(FirstDifference(log, SampleRows(5)), "");
  RunLog rows = SampleRows(3);
  rows.steps.dead_experts[0] = 77;
  EXPECT_EQ(FirstDifference(log, rows),
            "/steps/dead_experts at step 3: 2 against 77");
}

TEST(FirstDifference, NamesTheFirstValueInTheOrderOfTheSchema) {
  const auto difference = [](auto change) {
    RunLog log = SampleLog();
    change(log);
    return FirstDifference(SampleLog(), log);
  };

  EXPECT_EQ(difference([](RunLog& log) {
              log.steps.loss_nats[3] = 1;
              log.moe.expert_ids[0] = 1;
            }),
            "/steps/loss_nats at step 4: nan against 1");
  EXPECT_EQ(difference(
                [](RunLog& log) { log.eval.per_sequence_loss_nats[5] = 0.25; }),
            "/eval/per_sequence_loss_nats at step 5: 0.10000000000000001 "
            "against 0.25");
  EXPECT_EQ(difference([](RunLog& log) { log.tensors.digest[3] = 6; }),
            "/tensors/digest at step 4: 5 against 6");
  EXPECT_EQ(difference([](RunLog& log) { log.tensors.names[0] = "x"; }),
            "/tensors/names: layers.0.wq_activation against x");
  EXPECT_EQ(difference([](RunLog& log) { log.exchange.bytes_by_pair[15] = 1; }),
            "/exchange_pairs/bytes_by_pair at step 2: 1099511627791 against 1");
  EXPECT_EQ(difference([](RunLog& log) { log.steps.lr[0] = -0.0; }),
            "/steps/lr at step 1: 0.001 against -0");
}

}  // namespace
}  // namespace isoloss::runlog::rows_test

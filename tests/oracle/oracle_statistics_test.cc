// What level L2 makes of counts and errors: faults that hide in sums over a
// whole probe are planted, and harmless orders raise no alarm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/gate/oracle_flips.h"
#include "isoloss/gate/oracle_noise.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/exact_dot.h"
#include "oracle/sum_orders.h"
#include "support/earlier_probe.h"

namespace isoloss::oracle_statistics_test {
namespace {

using gate::CheckBursts;
using gate::CheckFlips;
using gate::CheckFlipSides;
using gate::CheckNoise;
using gate::CheckRowNoise;
using gate::CheckSignedError;
using gate::Outcome;
using oracle::Ascending;
using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;
using oracle::Order;
using oracle::Reversed;
using oracle::Row;
using ::testing::HasSubstr;

/// A probe of case plain, of tensors that are results of products.
gate::Probe EmptyProbe(const std::vector<std::string>& tensors = {
                           "layers.0.wq_wgrad"}) {
  gate::Probe probe;
  probe.file = "probe.h5";
  probe.log.cases = {"plain"};
  probe.log.tensors = tensors;
  auto& graph = probe.log.provenance.graph.tensors;
  for (const std::string& name : tensors) {
    const size_t end = name.rfind('_');
    graph.name.push_back(name);
    graph.kind.push_back(name.substr(end + 1));
    graph.site.push_back(name.substr(0, end));
  }
  return probe;
}

void Append(gate::Probe& probe, int64_t step, int64_t tensor,
            runlog::OracleRow row) {
  row.step = step;
  row.tensor = tensor;
  probe.log.oracle.Append(row);
}

// ---- bursts -----------------------------------------------------------------

constexpr int64_t kPlainSteps = 256;

/// Of a tensor whose 272 expected flips in 256 plain steps came, one or two in
/// each.
gate::Probe ProbeOfFlips(int64_t at_step, int64_t planted) {
  gate::Probe probe = EmptyProbe({"layers.0.wq_output"});
  Comparison untouched(Grid::kBf16);
  for (int64_t step = 1; step <= kPlainSteps; ++step) {
    runlog::OracleRow row = untouched.Row();
    row.elements = 10'000;
    row.flips = (step % 16 == 0 ? 2 : 1) + (step == at_step ? planted : 0);
    row.flips_toward_zero = row.flips * (step % 2);
    row.equal = row.elements - row.flips;
    row.expected_flips = 272.0 / 256;
    Append(probe, step, 0, row);
  }
  return probe;
}

TEST(Bursts, FindFiftyFlipsInOneOf256PlainSteps) {
  const gate::Policy policy;
  const gate::Probe probe = ProbeOfFlips(100, 50);

  // Their sum, 322, is far below its limit.
  EXPECT_EQ(CheckFlips({&probe}, policy).outcome, Outcome::kPass);
  const gate::Check check = CheckBursts({&probe}, policy);
  EXPECT_EQ(check.outcome, Outcome::kFail);
  ASSERT_EQ(check.findings.size(), 1);
  // (1 + 2 * 1.0625) / 2 = 1.56 clusters of two are foreseen, and with a third
  // of 0.001 over 257 tests P(N > 10) = 8e-7 <= 1.3e-6 < P(N > 9) = 5.8e-6.
  EXPECT_THAT(check.findings[0],
              HasSubstr("layers.0.wq_output in case plain, step 100 of "
                        "probe.h5: 51 flips, 1.06 expected, limit 20"));
}

// Of good probes the worst step had 10 flips where 2.7 were expected, all on
// one side.
TEST(Bursts, LeaveRoomForClusters) {
  const gate::Probe probe = ProbeOfFlips(100, 9);

  EXPECT_EQ(CheckBursts({&probe}, {}).outcome, Outcome::kPass);
}

// ---- rows -------------------------------------------------------------------

constexpr double kSigma = 0x1p-30;

/// 1000 rows of 64 elements near 1 with the noise that is expected, but one
/// with `factor` times as much.
runlog::OracleRow ThousandRows(double factor) {
  const CounterRng rng(1, 2);
  Comparison comparison(Grid::kFp32);
  uint64_t index = 0;
  for (size_t i = 0; i < 1000; ++i) {
    for (size_t j = 0; j < 64; ++j) {
      // Bell-shaped, variance 1: the sum of 12 uniform values less 6.
      double error = -6;
      for (int k = 0; k < 12; ++k) error += rng.Uniform(index++);
      error *= kSigma * (i == 777 ? factor : 1.0);
      // The value is the one FP32 number, and what it should be is beside it.
      comparison.Add(
          i, j, 0x1p-7f,
          Estimate{
              .exact = 0x1p-7 + error, .bound = 1e4 * kSigma, .noise = kSigma});
    }
  }
  return comparison.Row();
}

TEST(RowNoise, FindsOneBadRowInAThousand) {
  const gate::Policy policy;
  gate::Probe probe = EmptyProbe();
  Append(probe, 1, 0, ThousandRows(30));

  // Root of (999 + 30^2) / 1000 = 1.4 times the noise.
  EXPECT_EQ(CheckNoise({&probe}, policy).outcome, Outcome::kPass);
  const gate::Check check = CheckRowNoise({&probe}, policy);
  EXPECT_EQ(check.outcome, Outcome::kFail);
  EXPECT_THAT(check.findings,
              ::testing::ElementsAre(HasSubstr(
                  "row 777 of layers.0.wq_wgrad in case plain, step 1")));
}

TEST(RowNoise, LeavesTheWorstOfAThousandGoodRows) {
  const runlog::OracleRow row = ThousandRows(1);
  gate::Probe probe = EmptyProbe();
  Append(probe, 1, 0, row);

  // What chance explains at 1e-12 is not reached by the worst of 1000.
  EXPECT_LT(row.row_noise_ratio, 1);
  EXPECT_GT(row.row_noise_ratio, 0.5);
  EXPECT_EQ(CheckRowNoise({&probe}, {}).outcome, Outcome::kPass);
}

// A row of one element that matters is as uncertain as one element: its chance
// is sqrt(1 + 2 sqrt(x) + 2 x) = 8.2 for x = ln(1e12), not 1.8.
TEST(RowNoise, CountsTheElementsThatMatter) {
  constexpr double kLarge = 0x1p-10;
  Comparison comparison(Grid::kFp32);
  for (size_t j = 0; j < 64; ++j) {
    const double noise = j == 5 ? kLarge : 0.0;
    comparison.Add(
        0, j, 1.0f,
        Estimate{.exact = 1.0 + 8 * noise, .bound = 1.0, .noise = noise});
  }
  // The last places of the others are 2^-26 of its variance.
  EXPECT_NEAR(comparison.Row().row_noise_ratio, 8 / 8.17, 0.01);
}

// ---- signs ------------------------------------------------------------------

constexpr size_t kRows = 64;

float InHalves(const Row& a, const Row& b) {
  float parts[2] = {};
  for (size_t k = 0; k < a.size(); ++k) {
    float& part = parts[k < a.size() / 2 ? 0 : 1];
    part = std::fma(a[k], b[k], part);
  }
  return parts[0] + parts[1];
}

/// Each addition drops what does not fit.
float CutOff(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) {
    const double exact = static_cast<double>(sum) +
                         static_cast<double>(a[k]) * static_cast<double>(b[k]);
    sum = static_cast<float>(exact);
    if (std::fabs(static_cast<double>(sum)) > std::fabs(exact)) {
      sum = std::nextafter(sum, 0.0f);
    }
  }
  return sum;
}

/// An accumulator of three bits less than FP32, which drops what does not fit.
float CutOffThreeBits(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) {
    sum = std::bit_cast<float>(
        std::bit_cast<uint32_t>(std::fma(a[k], b[k], sum)) & ~7U);
  }
  return sum;
}

/// The sum loses its last bit as it leaves the accumulator.
float WithoutTheLastBit(const Row& a, const Row& b) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(Ascending(a, b)) & ~1U);
}

std::vector<Row> RandomRows(uint64_t stream, size_t depth) {
  const CounterRng rng(3, stream);
  std::vector<Row> rows(kRows, Row(depth));
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      rows[i][k] =
          oracle::RoundTo(Grid::kBf16, rng.Uniform(i * depth + k) - 0.5);
    }
  }
  return rows;
}

/// A probe of `steps` products in which `order` adds.
gate::Probe ProbeOfProducts(Grid grid, const Order& order, size_t depth,
                            int64_t steps) {
  gate::Probe probe = EmptyProbe();
  for (int64_t step = 1; step <= steps; ++step) {
    const auto stream = static_cast<uint64_t>(2 * step);
    const std::vector<Row> a = RandomRows(stream, depth);
    const std::vector<Row> b = RandomRows(stream + 1, depth);
    Comparison comparison(grid);
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kRows; ++j) {
        comparison.Add(
            i, j, oracle::RoundTo(grid, static_cast<double>(order(a[i], b[j]))),
            oracle::Dot(a[i].data(), b[j].data(), depth));
      }
    }
    EXPECT_EQ(comparison.Row().other, 0);
    Append(probe, step, 0, comparison.Row());
  }
  return probe;
}

TEST(SignedError, FindsAnAccumulatorThatCutsOff) {
  const gate::Policy policy;
  for (const Order& order : {Order(CutOff), Order(WithoutTheLastBit)}) {
    for (const size_t depth : {16, 64, 200}) {
      const gate::Probe probe =
          ProbeOfProducts(Grid::kFp32, order, depth, /*steps=*/2);

      // Beside the noise of a sum it is small.
      EXPECT_EQ(CheckNoise({&probe}, policy).outcome, Outcome::kPass) << depth;
      EXPECT_EQ(CheckRowNoise({&probe}, policy).outcome, Outcome::kPass);
      const gate::Check check = CheckSignedError({&probe}, policy);
      EXPECT_EQ(check.outcome, Outcome::kFail)
          << depth << ": " << check.evidence;
      EXPECT_THAT(check.evidence, HasSubstr("toward zero"));
    }
  }
}

TEST(SignedError, LeavesOrdersThatRound) {
  for (const Order& order :
       {Order(Ascending), Order(Reversed), Order(InHalves)}) {
    for (const size_t depth : {16, 200}) {
      const gate::Probe probe = ProbeOfProducts(Grid::kFp32, order, depth, 2);
      // Chance explains 1; the limit is 2.
      EXPECT_LT(*CheckSignedError({&probe}, {}).value, 1) << depth;
    }
  }
}

// Equal tokens have equal rows in the first layer, with equal errors: a
// thousand of them say no more than one.
TEST(SignedError, CountsARowThatRepeatsOnce) {
  Comparison comparison(Grid::kFp32);
  for (size_t i = 0; i < 1000; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      const double error = (i % 2 == 0 ? 1 : -1) * kSigma;
      comparison.Add(
          i, j, 0x1p-7f,
          Estimate{
              .exact = 0x1p-7 + error, .bound = 1e4 * kSigma, .noise = kSigma});
    }
  }
  EXPECT_EQ(comparison.Row().noisy_elements, 2 * 8);
}

// What an element is besides a sum may be off to one side: a function's
// approximation, or gains that all are 1 and round alike.
TEST(SignedError, IsOfProductsOnly) {
  gate::Probe probe = ProbeOfProducts(Grid::kFp32, CutOff, 64, 2);
  probe.log.provenance.graph.tensors.site[0].clear();

  EXPECT_EQ(CheckSignedError({&probe}, {}).outcome, Outcome::kPass);
}

TEST(FlipSides, FindAnAccumulatorThatCutsOff) {
  // With a third of 0.001, two hypotheses and two sides x = ln(12 000) = 9.4: n
  // steps whose flips all fall to one side are found if n > sqrt(2 n x), so
  // that n > 18.8. Of 48 steps of 4096 products nearly all have flips.
  const gate::Probe cut =
      ProbeOfProducts(Grid::kBf16, CutOffThreeBits, 200, 48);
  const gate::Check check = CheckFlipSides({&cut}, {});
  EXPECT_EQ(check.outcome, Outcome::kFail) << check.evidence;

  const gate::Probe good = ProbeOfProducts(Grid::kBf16, Reversed, 200, 48);
  EXPECT_EQ(CheckFlipSides({&good}, {}).outcome, Outcome::kPass);
}

// ---- probes of earlier programs ---------------------------------------------

TEST(OracleStatistics, SayWhatAnEarlierProgramsProbeDoesNotTell) {
  gate::Probe old = ProbeOfProducts(Grid::kFp32, CutOff, 64, 2);
  isoloss::test_support::MakeFirstLayout(old.log);

  for (const auto check : {CheckFlipSides, CheckRowNoise, CheckSignedError}) {
    const gate::Check result = check({&old}, {});
    EXPECT_EQ(result.outcome, Outcome::kPass);
    EXPECT_THAT(result.evidence,
                HasSubstr("1 of 1 probes are of an earlier program"));
  }
  EXPECT_EQ(CheckNoise({&old}, {}).outcome, Outcome::kPass);
}

}  // namespace
}  // namespace isoloss::oracle_statistics_test

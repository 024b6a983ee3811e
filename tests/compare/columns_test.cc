// Every comparison follows the schema: no column, old or new, is left out.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "../runlog/sample_log.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/golden.h"
#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::Field;
using runlog::RunLog;
using runlog::SampleLog;
using runlog::Scope;
using runlog::Shape;
using testing::HasSubstr;

/// Far more than any tolerance allows.
void Change(double& value) { value = std::isfinite(value) ? 2 * value + 1 : 7; }
void Change(std::string& value) { value += "x"; }
template <typename T>
void Change(T& value) {
  value ^= 1;
}

/// As recorded in a group that another dataset of it says something of: which
/// steps and places there are.
bool IsIndex(const runlog::Dataset<RunLog>& dataset) {
  return dataset.shape == Shape::kIndex || dataset.shape == Shape::kLabels;
}

/// What FirstRecordedDifference leaves to others.
bool IsLeftToOthers(const Field& field) {
  return field.domain.is_digest() || field.scope == Scope::kSlots ||
         field.scope == Scope::kTraffic;
}

/// Calls check(name, dataset, log) for each reproducible dataset of SampleLog()
/// with that one's last value changed. Returns how many there are.
int ForEachChange(
    const std::function<void(const std::string&, const runlog::Dataset<RunLog>&,
                             const RunLog&)>& check) {
  int changed = 0;
  RunLog sample = SampleLog();
  const size_t groups = runlog::Groups(sample).size();
  for (size_t g = 0; g < groups; ++g) {
    const size_t datasets = runlog::Groups(sample)[g].datasets.size();
    for (size_t d = 0; d < datasets; ++d) {
      RunLog log = SampleLog();
      const auto all = runlog::Groups(log);
      const auto& dataset = all[g].datasets[d];
      const bool empty = std::visit(
          [](auto* values) {
            if (!values->empty()) Change(values->back());
            return values->empty();
          },
          dataset.values);
      if (empty || !dataset.field.reproducible) continue;
      check(fmt::format("/{}/{}", all[g].name, dataset.field.name), dataset,
            log);
      ++changed;
    }
  }
  return changed;
}

TEST(EveryColumn, IsInTheExactComparisons) {
  const int changed = ForEachChange([](const std::string& name,
                                       const auto& dataset, const RunLog& log) {
    EXPECT_THAT(CompareContent(SampleLog(), log).differing,
                testing::Contains(name));
    if (dataset.shape == Shape::kIndex) return;  // these steps have no partner
    EXPECT_THAT(FirstDifference(SampleLog(), log), HasSubstr(name));
    if (dataset.shape == Shape::kLabels) return;  // names of one log are listed
    const auto first = FindDivergence(SampleLog(), log).first;
    ASSERT_TRUE(first.has_value()) << name;
    EXPECT_THAT(
        name, HasSubstr(first->quantity.substr(first->quantity.find(' ') + 1)));
    EXPECT_NE(first->a, first->b);
  });

  EXPECT_GT(changed, 60);
}

TEST(EveryColumn, IsARecordedDifferenceUnlessLeftToOthers) {
  int compared = 0;
  ForEachChange([&](const std::string& name, const auto& dataset,
                    const RunLog& log) {
    if (IsIndex(dataset)) return;
    const auto difference = FirstRecordedDifference(SampleLog(), log);
    EXPECT_NE(difference.has_value(), IsLeftToOthers(dataset.field)) << name;
    compared += difference.has_value() ? 1 : 0;
  });

  EXPECT_GT(compared, 60);
}

TEST(EveryColumn, OfTheMeshIsComparedOnOneMeshOnly) {
  ForEachChange([](const std::string& name, const auto& dataset, RunLog log) {
    const Scope scope = dataset.field.scope;
    if (IsIndex(dataset) || scope == Scope::kTraining || scope == Scope::kSlots)
      return;
    log.provenance.ranks += 1;
    EXPECT_FALSE(FindDivergence(SampleLog(), log).first.has_value()) << name;
    log.provenance = SampleLog().provenance;
    log.provenance.exchange = "another";
    EXPECT_FALSE(FirstRecordedDifference(SampleLog(), log).has_value()) << name;
  });
}

TEST(EveryColumn, OfOtherExtentsIsListed) {
  RunLog log = SampleLog();
  log.eval.sequences = 2;
  log.eval.per_sequence_loss_nats.resize(2 * log.eval.step.size());
  log.exchange.ranks = 2;
  log.exchange.bytes_sent.resize(2 * log.exchange.step.size());

  EXPECT_THAT(
      FindDivergence(SampleLog(), log).other_extents,
      testing::IsSupersetOf({"/eval/per_sequence_loss_nats: 3 against 2 "
                             "sequences",
                             "/exchange/bytes_sent: 4 against 2 ranks"}));
  EXPECT_TRUE(FindDivergence(SampleLog(), SampleLog()).other_extents.empty());

  log.provenance.ranks += 1;
  EXPECT_THAT(FindDivergence(SampleLog(), log).other_extents,
              testing::ElementsAre("/eval/per_sequence_loss_nats: 3 against 2 "
                                   "sequences"));
}

/// SampleLog() with one more column of /moe that no code but this knows.
struct WithInventedColumn {
  explicit WithInventedColumn(std::vector<double> with)
      : log(SampleLog()), values(std::move(with)) {}

  runlog::ComparedLog Compared() const {
    auto groups = runlog::Groups(log);
    for (auto& group : groups) {
      if (std::string(group.name) != "moe") continue;
      group.datasets.push_back(
          {Field{"invented", "1", "New", runlog::Domain::Real()},
           Shape::kRows,
           &values,
           {{"layers", log.moe.layers}}});
    }
    return {log.provenance, std::move(groups)};
  }

  RunLog log;
  std::vector<double> values;
};

TEST(EveryColumn, OfTomorrowIsComparedFromItsFirstDay) {
  const WithInventedColumn a({1, 2, 3, 4, 5, 6});
  const WithInventedColumn b({1, 2, 3, std::nextafter(4.0, 5.0), 5, 6});

  const runlog::SharedColumns shared(a.Compared(), b.Compared());
  const auto first = FindDivergence(shared).first;

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->quantity, "invented");
  EXPECT_EQ(first->name, "MoE layer 1");
  EXPECT_EQ(first->step, 2);
  EXPECT_EQ(first->last_equal_step, 1);
  EXPECT_EQ(first->b, "4.0000000000000009");
  EXPECT_FALSE(FirstRecordedDifference(shared).has_value()) << "one rounding";
}

TEST(EveryColumn, OfTomorrowIsARecordedDifferenceBeyondItsTolerance) {
  const WithInventedColumn a({1, 2, 3, 4, 5, 6});
  const WithInventedColumn b({1, 2, 3, 4 * (1 + 2e-9), 5, 6});

  const auto difference = FirstRecordedDifference(
      runlog::SharedColumns(a.Compared(), b.Compared()));

  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->quantity, "invented of MoE layer 1");
  EXPECT_EQ(difference->step, 2);
}

}  // namespace
}  // namespace isoloss::compare

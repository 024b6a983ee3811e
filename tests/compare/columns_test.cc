// Every comparison follows the schema: no column, old or new, is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "../runlog/sample_log.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/golden.h"
#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare::columns_test {
namespace {

using runlog::Field;
using runlog::Role;
using runlog::RunLog;
using runlog::SampleLog;
using runlog::Scope;
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
bool IsIndex(const runlog::Column& column) {
  return column.role == Role::kIndex || column.role == Role::kLabels;
}

/// What FirstRecordedDifference leaves to others.
bool IsLeftToOthers(const Field& field) {
  return field.domain.is_digest() || field.scope == Scope::kSlots;
}

/// Calls check(name, column, log) for each reproducible dataset of SampleLog()
/// with that one's last value changed. Returns how many there are.
int ForEachChange(
    const std::function<void(const std::string&, const runlog::Column&,
                             const RunLog&)>& check) {
  int changed = 0;
  for (const runlog::Group& group : runlog::RowGroups()) {
    for (const runlog::Column& column : group.columns) {
      if (!column.IsRecorded() || !column.field.reproducible) continue;
      RunLog log = SampleLog();
      if (runlog::View(log).Count(column) == 0) continue;
      runlog::MutableView(log).WithValues(
          column, [](auto& values) { Change(values.back()); });
      check(group.PathOf(column), column, log);
      ++changed;
    }
  }
  return changed;
}

TEST(EveryColumn, IsInTheExactComparisons) {
  const int changed = ForEachChange([](const std::string& name,
                                       const auto& column, const RunLog& log) {
    EXPECT_THAT(CompareContent(SampleLog(), log).differing,
                testing::Contains(name));
    if (column.role == Role::kIndex) return;  // these steps have no partner
    EXPECT_THAT(FirstDifference(SampleLog(), log), HasSubstr(name));
    if (column.role == Role::kLabels) return;  // names of one log are listed
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
  ForEachChange(
      [&](const std::string& name, const auto& column, const RunLog& log) {
        if (IsIndex(column)) return;
        const auto difference = FirstRecordedDifference(SampleLog(), log);
        EXPECT_NE(difference.has_value(), IsLeftToOthers(column.field)) << name;
        compared += difference.has_value() ? 1 : 0;
      });

  EXPECT_GT(compared, 60);
}

TEST(EveryColumn, OfTheMeshIsComparedOnOneMeshOnly) {
  ForEachChange([](const std::string& name, const auto& column, RunLog log) {
    const Scope scope = column.field.scope;
    if (IsIndex(column) || scope == Scope::kTraining || scope == Scope::kSlots)
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

/// A column of /moe that no code but this knows, with these values in two logs.
class InventedColumn {
 public:
  InventedColumn(std::vector<double> a, std::vector<double> b)
      : a_(Holding(std::move(a))), b_(Holding(std::move(b))) {}

  std::optional<runlog::StepDifference> First(const runlog::Rule& rule) const {
    return FirstInSteps(moe_.Steps(), {{&column_}}, rule);
  }

 private:
  /// In place of a column that SampleLog() has.
  static RunLog Holding(std::vector<double> values) {
    RunLog log = SampleLog();
    log.moe.router_entropy = std::move(values);
    return log;
  }

  const RunLog a_;
  const RunLog b_;
  const runlog::SharedColumns shared_{a_, b_};
  const runlog::SharedGroup& moe_ = shared_.group("moe");
  const runlog::Column invented_ = {
      {"invented", "1", "New", runlog::Domain::Real()},
      &runlog::MoeColumns::router_entropy,
      {{"layers", &runlog::MoeColumns::layers}}};
  const size_t layers_ = static_cast<size_t>(a_.moe.layers);
  const runlog::SharedColumn column_ = {&moe_,
                                        &invented_,
                                        runlog::View(a_.moe),
                                        runlog::View(b_.moe),
                                        moe_.rows,
                                        layers_,
                                        layers_,
                                        false,
                                        layers_};
};

TEST(EveryColumn, OfTomorrowIsComparedFromItsFirstDay) {
  const InventedColumn column({1, 2, 3, 4, 5, 6},
                              {1, 2, 3, std::nextafter(4.0, 5.0), 5, 6});

  const auto first = column.First({});

  ASSERT_TRUE(first.has_value());
  EXPECT_STREQ(first->value.column->quantity(), "invented");
  EXPECT_EQ(first->value.Place(), "MoE layer 1");
  EXPECT_EQ(first->value.row.step, 2);
  EXPECT_EQ(first->last_equal_step, 1);
  EXPECT_EQ(std::get<double>(first->value.Values().second),
            std::nextafter(4.0, 5.0));
  EXPECT_FALSE(column.First({.tolerance = 1e-9}).has_value()) << "one rounding";
}

TEST(EveryColumn, OfTomorrowDiffersBeyondItsTolerance) {
  const InventedColumn column({1, 2, 3, 4, 5, 6},
                              {1, 2, 3, 4 * (1 + 2e-9), 5, 6});

  const auto first = column.First({.tolerance = 1e-9});

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->value.Place(), "MoE layer 1");
  EXPECT_EQ(first->value.row.step, 2);
}

}  // namespace
}  // namespace isoloss::compare::columns_test

// Every comparison follows the schema: no column, old or new, is left out.
#include <fmt/format.h>
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
  return field.domain.is_digest() || field.scope == Scope::kSlots;
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

/// A column of /moe that no code but this knows, with these values in two logs.
class InventedColumn {
 public:
  InventedColumn(std::vector<double> a, std::vector<double> b)
      : values_a_(std::move(a)), values_b_(std::move(b)) {}

  std::optional<runlog::StepDifference> First(const runlog::Rule& rule) const {
    return FirstInSteps(moe_.Steps(), {{&column_}}, rule);
  }

 private:
  runlog::Dataset<const RunLog> Holding(const std::vector<double>& values) {
    return {Field{"invented", "1", "New", runlog::Domain::Real()},
            Shape::kRows,
            &values,
            {{"layers", log_.moe.layers}}};
  }

  const RunLog log_ = SampleLog();
  const runlog::SharedColumns shared_{log_, log_};
  const runlog::SharedGroup& moe_ = shared_.group("moe");
  const std::vector<double> values_a_;
  const std::vector<double> values_b_;
  const runlog::Dataset<const RunLog> a_ = Holding(values_a_);
  const runlog::Dataset<const RunLog> b_ = Holding(values_b_);
  const size_t layers_ = a_.Width();
  const runlog::SharedColumn column_ = {&moe_,   &a_,     &b_,   moe_.rows,
                                        layers_, layers_, false, layers_};
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
}  // namespace isoloss::compare

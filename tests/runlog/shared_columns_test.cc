#include "isoloss/runlog/shared_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "sample_log.h"

namespace isoloss::runlog::shared_columns_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::tuple<size_t, size_t, int64_t>> Matched(
    const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<std::tuple<size_t, size_t, int64_t>> rows;
  for (const SharedRow& row : MatchRows(a, b)) {
    rows.emplace_back(row.a, row.b, row.step);
  }
  return rows;
}

TEST(MatchRows, PairsStepsThatBothHave) {
  EXPECT_THAT(Matched({1, 2, 3, 5, 8}, {2, 4, 5, 9}),
              ElementsAre(std::tuple(1, 0, 2), std::tuple(3, 2, 5)));
  EXPECT_THAT(Matched({7}, {5, 6, 7, 8}), ElementsAre(std::tuple(0, 2, 7)));
  EXPECT_THAT(Matched({1, 2}, {3, 4}), IsEmpty());
  EXPECT_THAT(Matched({3, 4}, {1, 2}), IsEmpty());
  EXPECT_THAT(Matched({}, {1}), IsEmpty());
}

TEST(MatchNames, TakesTheFirstOfNamesThatRepeat) {
  const MatchedNames names = MatchNames({"u", "v", "u", "w"}, {"w", "u", "x"});

  ASSERT_EQ(names.shared.size(), 2u);
  EXPECT_EQ(names.shared[0].a, 0u);
  EXPECT_EQ(names.shared[0].b, 1u);
  EXPECT_EQ(names.shared[1].a, 3u);
  EXPECT_THAT(names.only_a, ElementsAre("v"));
  EXPECT_THAT(names.only_b, ElementsAre("x"));
}

/// The place that is named when the last value of /group/dataset differs.
std::string LastPlace(const std::string& group, const std::string& name) {
  const RunLog log = SampleLog();
  const SharedColumns shared(log, log);
  for (const SharedColumn& column : shared.all()) {
    if (column.group->of->name != group || column.field().name != name)
      continue;
    SharedValue value = {&column, column.rows.back(), 0, 0, 0};
    value.a = column.a.Count(*column.of) - 1;
    return value.Place();
  }
  return "no such column";
}

TEST(SharedValue, NamesItsPlaceByLabelsAndAxes) {
  EXPECT_EQ(LastPlace("steps", "loss_nats"), "");
  EXPECT_EQ(LastPlace("eval", "per_sequence_loss_nats"), "held-out sequence 2");
  EXPECT_EQ(LastPlace("parameters", "grad_norm"), "output.weight");
  EXPECT_EQ(LastPlace("tensors", "e8m0_histogram"),
            "layers.0.wq_wgrad, byte 255");
  EXPECT_EQ(LastPlace("moe", "expert_bias"), "MoE layer 1, expert 39");
  EXPECT_EQ(LastPlace("moe", "expert_ids"), "MoE layer 1, token 2, slot 1");
  EXPECT_EQ(LastPlace("exchange", "bytes_sent"), "rank 3");
  EXPECT_EQ(LastPlace("exchange_pairs", "bytes_by_pair"), "rank 3, rank 3");
}

TEST(SharedColumns, MatchPlacesByNameAndRowsByStep) {
  RunLog a = SampleLog();
  RunLog b = SampleLog();
  b.parameters.step = {2, 4, 5, 6};
  b.parameters.names = {"output.weight", "another", "tok_embeddings.weight"};
  const SharedColumns shared(a, b);

  for (const SharedColumn* column : shared.Comparable()) {
    if (column->group != &shared.group("parameters")) continue;
    ASSERT_EQ(column->rows.size(), 2u);
    const auto found = FirstDifferent(*column, column->rows[1], {});
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->row.step, 4);
    EXPECT_EQ(found->a, 3u * 3 + 0);
    EXPECT_EQ(found->b, 1u * 3 + 2);
  }
}

}  // namespace
}  // namespace isoloss::runlog::shared_columns_test

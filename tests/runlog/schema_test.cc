#include "isoloss/runlog/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "isoloss/runlog/probe_log_schema.h"
#include "runlog/sample_log.h"

namespace isoloss::runlog::schema_test {
namespace {

const Column& ColumnNamed(const std::string& path) {
  for (const Group& group : SchemaOf<RunLog>()) {
    for (const Column& column : group.columns) {
      if (group.PathOf(column) == path) return column;
    }
  }
  ADD_FAILURE() << "no column " << path;
  return SchemaOf<RunLog>().front().columns.front();
}

TEST(Schema, FindsEachColumnWhereItLies) {
  const RunLog log = SampleLog();
  const View view(log);

  EXPECT_EQ(&view.Values<double>(ColumnNamed("/steps/loss_nats")),
            &log.steps.loss_nats);
  EXPECT_EQ(&view.Values<double>(ColumnNamed("/tensors/std")),
            &log.tensors.statistics[kStat_std]);
  EXPECT_EQ(&view.Values<std::string>(ColumnNamed("/recipe/wgrad_x")),
            &log.provenance.graph.recipe.wgrad_x);
  EXPECT_EQ(&view.At<int64_t>(ColumnNamed("//seed").offset),
            &log.provenance.seed);
  const Column& ids = ColumnNamed("/moe/expert_ids");
  EXPECT_EQ(view.Width(ids), 2u * 3 * 2);
  EXPECT_EQ(&view.Size(ids.axes[2]), &log.moe.top_k);
}

TEST(Schema, GathersPlacesAndMembersOfEvents) {
  const RunLog log = SampleLog();
  const View view(log);

  view.WithValues(ColumnNamed("/exchange_pairs/rank"),
                  [](const auto& ranks) { EXPECT_EQ(ranks.size(), 4u); });
  view.WithValues(ColumnNamed("/events/kind"),
                  [&]<typename T>(const std::vector<T>& kinds) {
                    if constexpr (std::is_same_v<T, std::string>) {
                      EXPECT_THAT(kinds,
                                  ::testing::ElementsAre("start", "finish"));
                    }
                  });
}

/// That no name and no place stands twice, but for what an axis shares.
template <typename Log>
void ExpectEachOnce() {
  std::set<std::string> paths;
  std::map<std::pair<size_t, size_t>, std::string> places;
  for (const Group& group : SchemaOf<Log>()) {
    for (const Column& column : group.columns) {
      const std::string path = group.PathOf(column);
      EXPECT_TRUE(paths.insert(path).second) << path << " stands twice";
      if (column.offset == kNowhere) continue;
      const size_t member = column.role == Role::kMember ? column.in_row : 0;
      const auto [at, is_new] =
          places.try_emplace({column.offset, member}, path);
      EXPECT_TRUE(is_new) << path << " lies where " << at->second << " does";
    }
  }
}

TEST(Schema, HasEachNameAndEachPlaceOnce) {
  ExpectEachOnce<RunLog>();
  ExpectEachOnce<ProbeLog>();
}

TEST(Schema, LeavesOutWhatALaterLayoutBrought) {
  ProbeLog log;
  const Group& oracle = ComparisonGroups().front();
  const size_t all = oracle.ColumnsIn(View(log)).size();

  log.schema_version = 1;

  EXPECT_EQ(all, oracle.columns.size());
  EXPECT_EQ(oracle.ColumnsIn(View(log)).size(), all - 10);
}

TEST(AppendRow, GivesEachColumnTheValueOfItsName) {
  PrecisionColumns columns;
  columns.Append({.step = 3, .tensor = 4, .gain = 0.5, .underflows = 7});

  EXPECT_THAT(columns.step, ::testing::ElementsAre(3));
  EXPECT_THAT(columns.tensor, ::testing::ElementsAre(4));
  EXPECT_THAT(columns.gain, ::testing::ElementsAre(0.5));
  EXPECT_THAT(columns.saturated, ::testing::ElementsAre(0));
  EXPECT_THAT(columns.underflows, ::testing::ElementsAre(7));
}

}  // namespace
}  // namespace isoloss::runlog::schema_test

// A log that lacks a column or rows that its experiment asks for never passes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "full_evidence.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::gate::missing_columns_test {
namespace {

using runlog::Column;

/// A column that a test may remove.
struct Removable {
  std::string name;
  std::function<void()> remove;
  std::function<void()> put_back;
};

/// The columns of a log that are not empty, whatever their type.
template <typename Log>
std::vector<Removable> RemovablesOf(Log& log) {
  std::vector<Removable> columns;
  for (const runlog::Group& group : runlog::SchemaOf<Log>()) {
    for (const Column& column : group.columns) {
      if (group.IsFile() || !column.IsRecorded()) continue;
      runlog::MutableView(log).WithValues(column, [&](auto& values) {
        if (values.empty()) return;
        columns.push_back({group.PathOf(column), [&values] { values.clear(); },
                           [&values, was = values] { values = was; }});
      });
    }
  }
  return columns;
}

/// Removes each column, one at a time.
template <typename Content>
void ExpectEachColumnIsMissed(const std::vector<Removable>& columns,
                              const Content& content) {
  for (const Removable& column : columns) {
    column.remove();
    EXPECT_FALSE(runlog::CheckDomains(content).empty()) << column.name;
    column.put_back();
  }
  EXPECT_TRUE(runlog::CheckDomains(content).empty());
}

TEST(MissingColumns, NoColumnOfARunLogMayBeMissing) {
  Runs runs = FullRuns();
  const std::vector<Removable> columns = RemovablesOf(runs[0].log);
  // A new column is at least known to be optional (Field::when) or here.
  EXPECT_GE(columns.size(), 84);

  ExpectEachColumnIsMissed(columns, runs[0].log);
}

TEST(MissingColumns, NoGroupOfARunLogMayBeMissing) {
  const Runs runs = FullRuns();
  const auto expect_missed = [&](const auto& remove) {
    runlog::RunLog log = runs[0].log;
    remove(log);
    EXPECT_FALSE(runlog::CheckDomains(log).empty());
  };
  expect_missed([](auto& log) { log.eval = {}; });
  expect_missed([](auto& log) { log.parameters = {}; });
  expect_missed([](auto& log) { log.tensors = {}; });
  expect_missed([](auto& log) { log.moe = {}; });
  expect_missed([](auto& log) { log.exchange = {}; });
  expect_missed([](auto& log) { log.provenance.graph = {}; });
  expect_missed([](auto& log) { log.provenance.graph.recipe = {}; });
  expect_missed([](auto& log) { log.provenance.experiment_text.clear(); });
}

TEST(MissingColumns, TheGraphKnowsParametersAndTensors) {
  const Runs runs = FullRuns();
  for (const bool of_tensors : {false, true}) {
    runlog::RunLog log = runs[0].log;
    (of_tensors ? log.tensors.names : log.parameters.names)[0] = "other";
    EXPECT_THAT(
        runlog::CheckDomains(log).at(0).message,
        ::testing::HasSubstr("names has `other`, but /graph does not know it"));
  }
}

TEST(MissingColumns, RowsThatTheExperimentAsksForMayNotBeMissing) {
  const Runs runs = FullRuns();
  const auto expect_missed = [&](const auto& remove) {
    runlog::RunLog log = runs[0].log;
    remove(log);
    EXPECT_FALSE(runlog::CheckDomains(log).empty());
  };
  expect_missed([](auto& log) {
    log.eval.step.pop_back();
    log.eval.loss_nats.pop_back();
    log.eval.per_sequence_loss_nats.resize(2);
  });
  expect_missed([](auto& log) {
    auto& tensors = log.tensors;
    tensors.step.pop_back();
    tensors.digest.pop_back();
    for (auto& statistic : tensors.statistics) statistic.pop_back();
    tensors.e8m0_histogram.resize(runlog::kScaleBytes);
    tensors.e8m0_histogram_columnwise.resize(runlog::kScaleBytes);
  });
}

/// What the run does not record need not be there, and older versions lack what
/// came later.
TEST(MissingColumns, WhatWasNotRecordedIsNotMissed) {
  EXPECT_TRUE(runlog::CheckDomains(ArmRun(true, 1, 0).log).empty());
  EXPECT_TRUE(
      runlog::CheckDomains(test_support::SyntheticRun(true, 1, 0).log).empty());
  runlog::RunLog log = FullRuns()[0].log;
  // Resumed on another mesh behind step 20.
  log.events.push_back({1.75e9, "mesh", "/exchange ends here"});
  auto& x = log.exchange;
  for (auto* column :
       {&x.step, &x.bytes_to_self, &x.bytes_within_nodes,
        &x.bytes_between_nodes, &x.messages, &x.assignments, &x.dispatch_rows,
        &x.rank_rows, &x.node_rows, &x.max_rows_per_rank,
        &x.max_rows_per_expert, &x.empty_experts}) {
    column->resize(20);
  }
  for (auto* column : {&x.bytes_sent, &x.bytes_received}) column->resize(40);
  x.wait_seconds.resize(40);
  x.bytes_by_pair.clear();
  EXPECT_TRUE(runlog::CheckDomains(log).empty());
  // With an evaluation at step 15, the last one before the change.
  auto& text = log.provenance.experiment_text;
  const std::string every = "eval_every = ";
  text.replace(text.find(every), every.size() + 2, every + "15");
  test_support::FillAttributes(log.provenance);
  log.eval.step = {0, 15, 30, 45, 50};
  log.eval.loss_nats.assign(5, 2.5);
  log.eval.per_sequence_loss_nats.assign(10, 2.5);
  x.bytes_by_pair = {4 * 15, 6 * 15, 10 * 15, 10 * 15};
  for (const auto& violation : runlog::CheckDomains(log)) {
    ADD_FAILURE() << violation.message;
  }
}

TEST(MissingColumns, NoColumnOfAProbeLogOrEnsembleMayBeMissing) {
  FullEvidence evidence;
  runlog::ProbeLog& probe = evidence.probes[0].log;
  ExpectEachColumnIsMissed(RemovablesOf(probe), probe);

  auto& ensemble = evidence.seeds.ensemble;
  for (const auto part : {&runlog::EnsembleMember::steps,
                          &runlog::EnsembleMember::reference_steps}) {
    const auto members = ensemble.members;
    for (const Column& column : runlog::ColumnsOf<runlog::StepColumns>()) {
      if (column.field.name == "step") continue;
      for (auto& member : ensemble.members) {
        runlog::MutableView(member.*part).WithValues(column, [](auto& values) {
          values.clear();
        });
      }
      EXPECT_FALSE(runlog::CheckDomains(ensemble).empty()) << column.field.name;
      ensemble.members = members;
    }
  }
}

}  // namespace
}  // namespace isoloss::gate::missing_columns_test

// A wrong value in any column of any log that a verdict rests on never passes.
// The columns come from the schemas, so that a new one is covered at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/relations.h"
#include "isoloss/runlog/schema.h"
#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/full_columns.h"

namespace isoloss::gate {
namespace {

using runlog::Column;
using runlog::Domain;
using runlog::Field;
using runlog::Relation;

/// A number in memory that a test may overwrite.
struct Place {
  std::string name;
  Domain domain;
  std::function<double()> get;
  /// False if the type can't hold the value.
  std::function<bool(double)> set;
};

template <typename T>
Place PlaceOf(std::string name, const Domain& domain, T& value) {
  return {std::move(name), domain,
          [&value] { return static_cast<double>(value); },
          [&value](double given) {
            if constexpr (std::is_integral_v<T>) {
              constexpr auto kMost =
                  static_cast<double>(std::numeric_limits<T>::max());
              if (!(std::abs(given) < kMost)) return false;
            }
            value = static_cast<T>(given);
            return true;
          }};
}

/// Adds the first and the last value of a column.
template <typename T>
void AddEnds(const std::string& name, const Domain& domain, T& first, T& last,
             std::vector<Place>& places) {
  if constexpr (std::is_arithmetic_v<T>) {
    EXPECT_FALSE(domain.is_text()) << name;
    places.push_back(PlaceOf(name + " first", domain, first));
    places.push_back(PlaceOf(name + " last", domain, last));
  }
}

void AddAttribute(const Column& column, runlog::MutableView log,
                  std::vector<Place>& places) {
  log.WithValue(column, [&]<typename T>(T& value) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      const Field& field = column.field;
      EXPECT_FALSE(field.domain.is_text()) << field.name;
      places.push_back(PlaceOf("attribute " + field.name, field.domain, value));
    }
  });
}

void AddColumn(const std::string& group, const Column& column,
               runlog::MutableView log, std::vector<Place>& places) {
  const std::string name = fmt::format("/{}/{}", group, column.field.name);
  const Domain& domain = column.field.domain;
  if (!column.IsRecorded()) {
    if (column.type != runlog::ValueType::kDouble) return;
    auto& events = log.Values<runlog::Event>(column);
    const auto time = [&column](runlog::Event& event) -> double& {
      return runlog::MutableView(event).At<double>(column.in_row);
    };
    AddEnds(name, domain, time(events.front()), time(events.back()), places);
    return;
  }
  log.WithValues(column, [&](auto& values) {
    EXPECT_FALSE(values.empty())
        << name << " has no value to spoil: fill it (support/full_columns.h)";
    if (values.empty()) return;
    AddEnds(name, domain, values.front(), values.back(), places);
  });
}

/// All places of a log.
template <typename Log>
std::vector<Place> PlacesOf(Log& log) {
  std::vector<Place> places;
  const runlog::MutableView view(log);
  for (const runlog::Group& group : runlog::SchemaOf<Log>()) {
    for (const Column& column : group.columns) {
      if (column.role == runlog::Role::kAttribute) {
        AddAttribute(column, view, places);
      } else if (!group.IsFile()) {
        AddColumn(group.name, column, view, places);
      }
    }
  }
  return places;
}

constexpr double kInf = std::numeric_limits<double>::infinity();

/// NaN, infinities, negative and too large values outside of the domain; where
/// a relation holds, also values inside that break it.
std::vector<double> WrongValues(const Place& place, double was, bool has_sums) {
  std::vector<double> wrong;
  for (const double value :
       {std::nan(""), kInf, -kInf, -1.0, -5.0, -0x1p57, 0x1p62, 1e300}) {
    const bool contained = place.domain.Contains(value);
    if (!contained) wrong.push_back(value);
  }
  if (place.domain.Has(Relation::kDefined)) wrong.push_back(std::nan(""));
  // 0 is no digest; any other number could be one.
  if (place.domain.Has(Relation::kDigests)) wrong.push_back(0);
  uint32_t sums = place.domain.relations();
  for (const Relation relation : {Relation::kDefined, Relation::kDigests}) {
    sums &= ~(uint32_t{1} << static_cast<uint32_t>(relation));
  }
  // Beyond any other count or number of the sample; of messages there may be
  // many, but not fewer than damaged ones.
  const bool messages = place.name.starts_with("/exchange/messages");
  if (sums != 0 && has_sums) wrong.push_back(messages ? 0 : was + 1e6);
  return wrong;
}

/// Puts each wrong value at each place, one at a time; `judge` must not pass
/// it.
void ExpectNoPass(std::span<const Place> places,
                  const std::function<Outcome()>& judge, bool has_sums) {
  size_t tried = 0;
  for (const Place& place : places) {
    const double was = place.get();
    for (const double value : WrongValues(place, was, has_sums)) {
      // NaN stays what it was, whatever is added to it.
      if (std::isnan(value) && std::isnan(was)) continue;
      if (!place.set(value)) continue;
      ++tried;
      const Outcome outcome = judge();
      EXPECT_GE(outcome, Outcome::kFail)
          << place.name << " = " << value << " instead of " << was << ": "
          << OutcomeName(outcome);
      place.set(was);
    }
  }
  EXPECT_GT(tried, places.size());
  EXPECT_LT(judge(), Outcome::kFail) << "a place was not put back";
}

/// An experiment that passes, whose logs have every column.
Runs FullRuns() {
  Runs runs = HealthyRuns();
  for (auto& run : runs) {
    testing::FillColumns(run.log);
  }
  return runs;
}

TEST(Domains, NoWrongValueOfARunLogPasses) {
  Runs runs = FullRuns();
  const auto judge = [&] { return JudgeRuns(runs).outcome; };
  ASSERT_EQ(judge(), Outcome::kPass)
      << ::testing::PrintToString(JudgeRuns(runs).checks.back().quantity);

  ExpectNoPass(PlacesOf(runs[kCandidate3].log), judge, /*has_sums=*/true);
}

/// A regression with a probe that has every column and two ensembles.
struct FullEvidence {
  TwoVersions versions{4};
  std::vector<Probe> probes;
  NullEnsemble benign = BenignEnsemble(20);
  NullEnsemble seeds = SeedsEnsemble(12);

  FullEvidence() { probes.push_back(PrecisionProbe(versions.now[0])); }

  Judgement Judged() const {
    const compare::Pairing pairing = versions.Pair();
    return Judge({.pairing = &pairing,
                  .candidate_probes = probes,
                  .benign = &benign,
                  .seeds = &seeds},
                 Regression());
  }
};

TEST(Domains, NoWrongValueOfAProbeLogPasses) {
  FullEvidence evidence;
  ASSERT_EQ(evidence.Judged().outcome, Outcome::kPass)
      << evidence.Judged().checks.back().quantity;

  ExpectNoPass(
      PlacesOf(evidence.probes[0].log),
      [&] { return evidence.Judged().outcome; },
      /*has_sums=*/true);
}

/// Places of a member; benign ensembles have no teacher-forced steps.
template <typename Part>
void AddPart(const char* group, Part& part, std::vector<Place>& places) {
  const runlog::MutableView view(part);
  for (const Column& column : runlog::ColumnsOf<Part>()) {
    if (view.Count(column) > 0) AddColumn(group, column, view, places);
  }
}

void AddAttributes(runlog::Provenance& provenance, std::vector<Place>& places) {
  for (const Column& column : runlog::AttributeGroup().columns) {
    AddAttribute(column, runlog::MutableView(provenance), places);
  }
}

std::vector<Place> PlacesOfEnsemble(runlog::Ensemble& ensemble, bool precise) {
  std::vector<Place> places;
  AddAttributes(ensemble.provenance, places);
  runlog::EnsembleMember& member = ensemble.members[1];
  AddPart("steps", member.steps, places);
  AddPart("reference_steps", member.reference_steps, places);
  AddPart("parameters", member.parameters, places);
  AddPart("reference_parameters", member.reference_parameters, places);
  if (!precise) return places;
  AddAttributes(ensemble.reference_provenance, places);
  AddPart("precision", member.precision, places);
  AddPart("routing_flips", member.routing_flips, places);
  return places;
}

TEST(Domains, NoWrongValueOfAnEnsemblePasses) {
  FullEvidence evidence;
  for (NullEnsemble* ensemble : {&evidence.benign, &evidence.seeds}) {
    ExpectNoPass(
        PlacesOfEnsemble(ensemble->ensemble, ensemble == &evidence.seeds),
        [&] { return evidence.Judged().outcome; },
        /*has_sums=*/true);
  }
}

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

TEST(Domains, NoColumnOfARunLogMayBeMissing) {
  Runs runs = FullRuns();
  const std::vector<Removable> columns = RemovablesOf(runs[0].log);
  // A new column is at least known to be optional (Field::when) or here.
  EXPECT_GE(columns.size(), 84);

  ExpectEachColumnIsMissed(columns, runs[0].log);
}

TEST(Domains, NoGroupOfARunLogMayBeMissing) {
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

TEST(Domains, TheGraphKnowsParametersAndTensors) {
  const Runs runs = FullRuns();
  for (const bool of_tensors : {false, true}) {
    runlog::RunLog log = runs[0].log;
    (of_tensors ? log.tensors.names : log.parameters.names)[0] = "other";
    EXPECT_THAT(
        runlog::CheckDomains(log).at(0).message,
        ::testing::HasSubstr("names has `other`, but /graph does not know it"));
  }
}

TEST(Domains, RowsThatTheExperimentAsksForMayNotBeMissing) {
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
TEST(Domains, WhatWasNotRecordedIsNotMissed) {
  EXPECT_TRUE(runlog::CheckDomains(ArmRun(true, 1, 0).log).empty());
  EXPECT_TRUE(
      runlog::CheckDomains(testing::SyntheticRun(true, 1, 0).log).empty());
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
  testing::FillAttributes(log.provenance);
  log.eval.step = {0, 15, 30, 45, 50};
  log.eval.loss_nats.assign(5, 2.5);
  log.eval.per_sequence_loss_nats.assign(10, 2.5);
  x.bytes_by_pair = {4 * 15, 6 * 15, 10 * 15, 10 * 15};
  for (const auto& violation : runlog::CheckDomains(log)) {
    ADD_FAILURE() << violation.message;
  }
}

TEST(Domains, NoColumnOfAProbeLogOrEnsembleMayBeMissing) {
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

TEST(Domains, LearningRatesFollowTheSchedule) {
  const auto outcome = [](const auto& spoil) {
    FullEvidence evidence;
    for (auto* runs : {&evidence.versions.approved, &evidence.versions.now}) {
      for (auto& run : *runs) spoil(run.log.steps.lr);
    }
    return evidence.Judged().outcome;
  };
  EXPECT_EQ(outcome([](auto&) {}), Outcome::kPass);
  EXPECT_EQ(outcome([](auto& lr) { lr[7] = 0; }), Outcome::kFail);
  EXPECT_EQ(outcome([](auto& lr) { lr.back() *= 1 + 1e-9; }), Outcome::kFail);
  for (NullEnsemble FullEvidence::*null :
       {&FullEvidence::benign, &FullEvidence::seeds}) {
    FullEvidence evidence;
    (evidence.*null).ensemble.members[1].steps.lr[3] = 2e-3;
    EXPECT_EQ(evidence.Judged().outcome, Outcome::kInvalid);
  }
}

TEST(Domains, ViolationsNameTheirPlace) {
  const Runs runs = FullRuns();
  const auto message = [&](const auto& spoil) {
    runlog::RunLog log = runs[0].log;
    spoil(log);
    const auto violations = runlog::CheckDomains(log);
    return violations.empty() ? "" : violations[0].message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](auto& log) { log.moe.tokens_per_expert[5] = -1; }),
              HasSubstr("is -1 at step 3, layer 0, expert 1 (1 of 100"));
  EXPECT_THAT(message([](auto& log) { log.parameters.grad_norm[3] = -1; }),
              HasSubstr("at step 2, parameter router ("));
  EXPECT_THAT(message([](auto& log) {
                log.tensors.statistics[runlog::kStat_min][1] = 1e300;
              }),
              HasSubstr("at step 50, tensor layers.0.wq_weight ("));
  EXPECT_THAT(message([](auto& log) { log.exchange.bytes_sent[1] = -1; }),
              HasSubstr("at step 1, rank 1 ("));
  EXPECT_THAT(message([](auto& log) { log.exchange.bytes_by_pair[2] = -1; }),
              HasSubstr("in row 1, rank 0 ("));
}

/// Rows of a probe counted twice or for another step.
TEST(Domains, RowsOfAProbeStandWhereTheProbeMetThem) {
  using Columns = std::vector<int64_t>;
  const auto expect_missed = [](const auto& spoil) {
    FullEvidence evidence;
    auto& log = evidence.probes[0].log;
    ASSERT_TRUE(runlog::CheckDomains(log).empty());
    spoil(log);
    EXPECT_FALSE(runlog::CheckDomains(log).empty());
  };
  const auto spoils = std::array<void (*)(Columns&), 3>{
      [](Columns& column) { std::swap(column[0], column[kRowsOfStep]); },
      [](Columns& column) { column[kRowsOfStep] = column[0]; },
      [](Columns& column) { std::reverse(column.begin(), column.end()); }};
  for (const auto spoil : spoils) {
    expect_missed([&](auto& log) { spoil(log.oracle.step); });
  }
  expect_missed(
      [](auto& log) { std::swap(log.routing.step[0], log.routing.step[1]); });
  expect_missed([](auto& log) { log.routing.step[1] = log.routing.step[0]; });
  expect_missed([](auto& log) { ++log.routing.tokens[2]; });
  expect_missed([](auto& log) { log.plain_steps.step[1] = 1; });
  expect_missed([](auto& log) { log.precision.tensor[1] = 0; });
}

TEST(Domains, NothingIsWrongWithGoldenRuns) {
  const std::filesystem::path folder = ISOLOSS_SOURCE_DIR "/golden";
  size_t logs = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder / "curves")) {
    if (entry.path().extension() != ".h5") continue;
    ++logs;
    // Runs that computed NaN did so in a whole and unharmed file.
    const bool diverged = entry.path().parent_path().filename() == "nonfinite";
    const auto found = runlog::CheckDomains(runlog::ReadRunLog(entry.path()));
    EXPECT_EQ(diverged, !found.empty()) << entry.path();
    for (const auto& violation : found) {
      if (diverged && violation.fault == runlog::Fault::kRun) continue;
      ADD_FAILURE() << entry.path() << ": " << violation.message;
    }
  }
  EXPECT_GE(logs, 20);
  for (const char* name : {"nano-bf16.h5", "nano-mxfp8.h5"}) {
    for (const auto& violation : runlog::CheckDomains(
             runlog::ReadEnsemble(folder / "ensembles" / name))) {
      ADD_FAILURE() << name << ": " << violation.message;
    }
  }
}

TEST(Domains, StepsOfAnEnsembleCountFromOne) {
  NullEnsemble benign = BenignEnsemble(3);
  ASSERT_TRUE(runlog::CheckDomains(benign.ensemble).empty());
  auto& member = benign.ensemble.members[1];
  for (std::vector<int64_t>* steps :
       {&member.steps.step, &member.reference_steps.step,
        &member.parameters.step, &member.reference_parameters.step}) {
    ++steps->back();
    EXPECT_EQ(runlog::CheckDomains(benign.ensemble).size(), 1);
    --steps->back();
  }
}

/// A rule that no column names would not stand in the documentation.
TEST(Domains, EveryRelationIsNamedByAColumn) {
  Runs runs = FullRuns();
  const std::vector<Place> places = PlacesOf(runs[0].log);
  for (const runlog::RelationRule& rule : runlog::RelationRules()) {
    EXPECT_TRUE(std::any_of(
        places.begin(), places.end(),
        [&](const Place& place) { return place.domain.Has(rule.relation); }))
        << rule.rule;
  }
}

}  // namespace
}  // namespace isoloss::gate

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
#include "isoloss/runlog/probe_schema.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/relations.h"
#include "isoloss/runlog/schema.h"
#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/full_columns.h"

namespace isoloss::gate {
namespace {

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

/// What visitors of columns have in common: each dataset is one.
template <typename Visitor>
class ColumnVisitor {
 public:
  void LayoutVersion(const Field&, int64_t) {}
  void Version(const Field&, int64_t) {}
  void Group(const char* name, const char*, int64_t) { group = name; }
  void Count(const Field&, int64_t&) {}
  template <typename T>
  void RequiredColumn(const Field& field, std::vector<T>& values) {
    static_cast<Visitor*>(this)->Column(field, values);
  }
  template <typename T>
  void Array(const Field& field, std::vector<T>& values,
             std::initializer_list<runlog::Axis<int64_t>>) {
    static_cast<Visitor*>(this)->Column(field, values);
  }
  void Labels(const Field& field, std::vector<std::string>& names,
              const runlog::Axis<int64_t>&) {
    static_cast<Visitor*>(this)->Column(field, names);
  }

  std::string group;
};

/// Visitor of all schemas behind the places: the first and the last value of
/// each column.
class Places : public ColumnVisitor<Places> {
 public:
  template <typename T>
  void Attribute(const Field& field, T& value) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      EXPECT_FALSE(field.domain.is_text()) << field.name;
      places.push_back(
          PlaceOf(std::string("attribute ") + field.name, field.domain, value));
    }
  }
  template <typename T>
  void Column(const Field& field, std::vector<T>& values) {
    const std::string name = fmt::format("/{}/{}", group, field.name);
    EXPECT_FALSE(values.empty())
        << name << " has no value to spoil: fill it (support/full_columns.h)";
    if constexpr (std::is_arithmetic_v<T>) {
      EXPECT_FALSE(field.domain.is_text()) << name;
      if (values.empty()) return;
      places.push_back(PlaceOf(name + " first", field.domain, values.front()));
      places.push_back(PlaceOf(name + " last", field.domain, values.back()));
    }
  }
  template <typename T>
  void Member(const Field& field, std::vector<runlog::Event>& rows,
              T runlog::Event::*member) {
    if constexpr (std::is_arithmetic_v<T>) {
      ASSERT_FALSE(rows.empty());
      const std::string name = fmt::format("/{}/{}", group, field.name);
      places.push_back(
          PlaceOf(name + " first", field.domain, rows.front().*member));
      places.push_back(
          PlaceOf(name + " last", field.domain, rows.back().*member));
    }
  }

  std::vector<Place> places;
};

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
  Places places;
  runlog::VisitRunLog(places, runs[kCandidate3].log);

  ExpectNoPass(places.places, judge, /*has_sums=*/true);
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
  Places places;
  runlog::VisitProbeLog(places, evidence.probes[0].log);

  ExpectNoPass(
      places.places, [&] { return evidence.Judged().outcome; },
      /*has_sums=*/true);
}

void VisitEnsemble(Places& places, runlog::Ensemble& ensemble, bool precise) {
  const auto column = [&](const Field& field, auto& values) {
    // Benign ensembles have no teacher-forced steps.
    if (!values.empty()) places.Column(field, values);
  };
  runlog::VisitProvenance(places, ensemble.provenance);
  runlog::EnsembleMember& member = ensemble.members[1];
  places.group = "steps";
  runlog::VisitSteps(column, member.steps);
  places.group = "reference_steps";
  runlog::VisitSteps(column, member.reference_steps);
  places.group = "parameters";
  runlog::VisitParameterColumns(column, member.parameters);
  places.group = "reference_parameters";
  runlog::VisitParameterColumns(column, member.reference_parameters);
  if (!precise) return;
  runlog::VisitProvenance(places, ensemble.reference_provenance);
  places.group = "precision";
  runlog::VisitPrecision(column, member.precision);
  places.group = "routing_flips";
  runlog::VisitRoutingFlips(column, member.routing_flips);
}

TEST(Domains, NoWrongValueOfAnEnsemblePasses) {
  FullEvidence evidence;
  for (NullEnsemble* ensemble : {&evidence.benign, &evidence.seeds}) {
    Places places;
    VisitEnsemble(places, ensemble->ensemble, ensemble == &evidence.seeds);
    ExpectNoPass(
        places.places, [&] { return evidence.Judged().outcome; },
        /*has_sums=*/true);
  }
}

/// A column that a test may remove.
struct Removable {
  std::string name;
  std::function<void()> remove;
  std::function<void()> put_back;
};

/// Visitor of all schemas behind the columns, whatever their type.
class Removables : public ColumnVisitor<Removables> {
 public:
  template <typename T>
  void Attribute(const Field&, T&) {}
  template <typename T>
  void Column(const Field& field, std::vector<T>& values) {
    if (values.empty()) return;
    columns.push_back({fmt::format("/{}/{}", group, field.name),
                       [&values] { values.clear(); },
                       [&values, was = values] { values = was; }});
  }
  template <typename T>
  void Member(const Field&, std::vector<runlog::Event>&, T runlog::Event::*) {}

  std::vector<Removable> columns;
};

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
  Removables columns;
  runlog::VisitRunLog(columns, runs[0].log);
  // A new column is at least known to be optional (Field::when) or here.
  EXPECT_GE(columns.columns.size(), 84);

  ExpectEachColumnIsMissed(columns.columns, runs[0].log);
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
  Removables of_probe;
  runlog::VisitProbeLog(of_probe, evidence.probes[0].log);
  ExpectEachColumnIsMissed(of_probe.columns, evidence.probes[0].log);

  auto& ensemble = evidence.seeds.ensemble;
  for (const auto part : {&runlog::EnsembleMember::steps,
                          &runlog::EnsembleMember::reference_steps}) {
    const auto members = ensemble.members;
    runlog::VisitSteps(
        [&](const Field& field, auto& column) {
          if (&column ==
              static_cast<const void*>(&(ensemble.members[0].*part).step)) {
            return;
          }
          for (auto& member : ensemble.members) {
            runlog::VisitSteps(
                [&](const Field& other, auto& values) {
                  if (std::string_view(field.name) == other.name) {
                    values.clear();
                  }
                },
                member.*part);
          }
          EXPECT_FALSE(runlog::CheckDomains(ensemble).empty()) << field.name;
          ensemble.members = members;
        },
        ensemble.members[0].*part);
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
  Places places;
  runlog::VisitRunLog(places, runs[0].log);
  for (const runlog::RelationRule& rule : runlog::RelationRules()) {
    EXPECT_TRUE(std::any_of(
        places.places.begin(), places.places.end(),
        [&](const Place& place) { return place.domain.Has(rule.relation); }))
        << rule.rule;
  }
}

}  // namespace
}  // namespace isoloss::gate

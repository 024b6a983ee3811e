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

#include "full_evidence.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/relations.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::gate::domains_test {
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

/// All places of a log whose recipe does not change.
template <typename Log>
std::vector<Place> PlacesOf(Log& log) {
  std::vector<Place> places;
  const runlog::MutableView view(log);
  for (const runlog::Group& group : runlog::SchemaOf<Log>()) {
    for (const Column& column : group.columns) {
      if (column.role == runlog::Role::kAttribute) {
        AddAttribute(column, view, places);
      } else if (!group.IsFile() && !group.optional) {
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

TEST(Domains, NoWrongValueOfARunLogPasses) {
  Runs runs = FullRuns();
  const auto judge = [&] { return JudgeRuns(runs).outcome; };
  ASSERT_EQ(judge(), Outcome::kPass)
      << ::testing::PrintToString(JudgeRuns(runs).checks.back().quantity);

  ExpectNoPass(PlacesOf(runs[kCandidate3].log), judge, /*has_sums=*/true);
}

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
}  // namespace isoloss::gate::domains_test

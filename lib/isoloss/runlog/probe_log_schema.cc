#include "isoloss/runlog/probe_log_schema.h"

#include <cstdint>

#include "isoloss/base/portable_math.h"

namespace isoloss::runlog {
namespace {

/// The columns on the shape of flips came with this version of the layout.
constexpr int64_t kShape = 2;
/// Likewise the error of a tensor whose elements have unequal variances.
constexpr int64_t kUnequal = 3;
/// Likewise what a sample left out.
constexpr int64_t kSampled = 4;

}  // namespace

Columns ListOf(const OracleColumns& /*part*/) {
  return {
#define ISOLOSS_ORACLE(type, name, unit, meaning, domain, since) \
  Column({#name, unit, meaning, domain}, &OracleColumns::name,   \
         &OracleRow::name)                                       \
      .Since(since),
#include "isoloss/runlog/probe_log.def"
  };
}

Columns ListOf(const OracleRoutingColumns& /*part*/) {
  return {
#define ISOLOSS_ROUTING(type, name, unit, meaning, domain, since)     \
  Column({#name, unit, meaning, domain}, &OracleRoutingColumns::name, \
         &OracleRoutingRow::name)                                     \
      .Since(since),
#include "isoloss/runlog/probe_log.def"
  };
}

Columns ListOf(const PrecisionColumns& /*part*/) {
  return {
#define ISOLOSS_PRECISION(type, name, unit, meaning, domain, since) \
  Column({#name, unit, meaning, domain}, &PrecisionColumns::name,   \
         &PrecisionRow::name)                                       \
      .Since(since),
#include "isoloss/runlog/probe_log.def"
  };
}

Columns ListOf(const RoutingFlipColumns& /*part*/) {
  return {
#define ISOLOSS_FLIP_SHARE(type, name, unit, meaning, domain, since) \
  Column({#name, unit, meaning, domain}, &RoutingFlipColumns::name)  \
      .Since(since),
#include "isoloss/runlog/probe_log.def"
  };
}

Columns ListOf(const PlainStepColumns& /*part*/) {
  return {
#define ISOLOSS_PLAIN_STEP(type, name, unit, meaning, domain, since) \
  Column({#name, unit, meaning, domain}, &PlainStepColumns::name).Since(since),
#include "isoloss/runlog/probe_log.def"
  };
}

namespace {

/// Makes a group in which all columns are required.
template <typename Part>
Group Required(const char* name, const char* description,
               Part ProbeLog::*part) {
  Columns columns = PartOf(part, ColumnsOf<Part>());
  for (Column& column : columns) column.required = true;
  Group group(name, description, 1, std::move(columns));
  group.own_version = OffsetOf(&ProbeLog::schema_version);
  return group;
}

Schema ComparisonSchema() {
  using L = ProbeLog;
  return {
      Required("oracle", "Each tensor of each probed step against the oracle",
               &L::oracle),
      Required("routing", "Each MoE layer of each probed step", &L::routing),
      Required("precision",
               "Each tensor of each teacher-forced step against a reference "
               "arm",
               &L::precision),
      Required("routing_flips", "Each MoE layer of each teacher-forced step",
               &L::routing_flips),
  };
}

Group PlainStepGroup() {
  return Required("plain_steps", "Each step of the run of case plain",
                  &ProbeLog::plain_steps);
}

Schema ProbeSchema() {
  using L = ProbeLog;
  const Group versions(
      "", "", 1,
      {{Role::kOwnVersion,
        {"probe_schema_version", "1", "Version of this layout",
         Domain::Count(1)},
        kProbeSchemaVersion,
        &L::schema_version},
       {Role::kRunVersion,
        {"run_schema_version", "1",
         "Version of the run log's layout that attributes follow",
         Domain::Count(1)},
        kSchemaVersion}});
  const Group attributes(
      "", "", 1,
      {{{"reference_recipe", "",
         "Recipe of the arm that /precision compares with", Domain::Text()},
        &L::reference_recipe},
       {Field{"operations", "1",
              "Recorded operations of another program that were compared; "
              "absent: isoloss probed a run of its own",
              Domain::Count()}
            .Optional(),
        &L::operations}});
  const Group cases(
      "cases", "What was probed", 1,
      {{{"name", "", "Case of the inputs", Domain::Text()}, &L::cases}});
  const Group tensors(
      "tensors", "Tensors of a step, in order of computation", 1,
      {{{"name", "", "<module>_<tensor>", Domain::Text()}, &L::tensors}});
  return Joined({{versions},
                 PartOf(&L::provenance, FileSchema()),
                 {attributes, cases, tensors, PlainStepGroup()},
                 ComparisonSchema()});
}

Group WithoutRule(Group steps) {
  steps.columns.resize(3, steps.columns.front());
  for (Column& column : std::span(steps.columns).subspan(1)) {
    column.field.domain = column.field.domain.OrNan();
  }
  return steps;
}

}  // namespace

std::span<const Group> ComparisonGroups() {
  static const Schema schema = ComparisonSchema();
  return schema;
}

const Group& ForeignStepGroup() {
  static const Group group = WithoutRule(PlainStepGroup());
  return group;
}

template <>
const Schema& SchemaOf<ProbeLog>() {
  static const Schema schema = ProbeSchema();
  return schema;
}

void OracleColumns::Append(const OracleRow& row) {
  AppendRow(ColumnsOf<OracleColumns>(), View(row), MutableView(*this));
}

int64_t OracleColumns::UnseenElements(size_t i) const {
  return unseen_elements.empty() ? 0 : unseen_elements[i];
}

double OracleColumns::MissedShare(size_t i) const {
  if (draws.empty() || draws[i] == 0) return 0.0;
  const double of_draw =
      portable::Log(kMissChance) / static_cast<double>(draws[i]);
  return -portable::Expm1(of_draw);
}

void OracleRoutingColumns::Append(const OracleRoutingRow& row) {
  AppendRow(ColumnsOf<OracleRoutingColumns>(), View(row), MutableView(*this));
}

void PrecisionColumns::Append(const PrecisionRow& row) {
  AppendRow(ColumnsOf<PrecisionColumns>(), View(row), MutableView(*this));
}

}  // namespace isoloss::runlog

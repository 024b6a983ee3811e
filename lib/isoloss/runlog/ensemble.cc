#include "isoloss/runlog/ensemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/runlog/column_check.h"
#include "isoloss/runlog/content_digest.h"
#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/schema_reader.h"
#include "isoloss/runlog/schema_writer.h"

namespace isoloss::runlog {
namespace {

/// Limits the bytes that each member adds: far more than an ensemble needs,
/// which has some dozens of members.
constexpr size_t kMaxMemberBytes = size_t{128} << 20;

/// Holds the rows of all members one after the other, with the member of each:
/// a few long datasets instead of many short ones.
template <typename Part>
struct Stacked {
  std::vector<int64_t> member;
  Part columns;
};

/// Holds an ensemble as it is on disk.
struct Tables {
  std::string kind;
  int64_t run_schema_version = kSchemaVersion;
  Provenance provenance;
  Provenance reference_provenance;
  std::vector<std::string> tensors;
  std::vector<int64_t> seeds;
  std::vector<std::string> perturbations;
  Stacked<StepColumns> steps;
  Stacked<StepColumns> reference_steps;
  Stacked<ParameterColumns> parameters;
  Stacked<ParameterColumns> reference_parameters;
  Stacked<PrecisionColumns> precision;
  Stacked<RoutingFlipColumns> routing_flips;
  std::string digest;
};

[[noreturn]] void RejectMember(size_t member, std::string_view column,
                               std::string_view what) {
  ThrowError(ErrorKind::kShape,
             "null ensemble: {} of member {} {}, but all members must record "
             "the same. Build the ensemble anew.",
             column, member, what);
}

/// Copies the labels, which all members share.
template <typename Part>
void TakeLabels(const Part& from, Part& to) {
  if constexpr (std::is_same_v<Part, ParameterColumns>) {
    to.count = from.count;
    to.names = from.names;
  }
}

/// Compares the labels of two members, which only parameters have.
template <typename Part>
bool SameLabels(const Part& a, const Part& b) {
  if constexpr (std::is_same_v<Part, ParameterColumns>) {
    return a.count == b.count && a.names == b.names;
  }
  return true;
}

template <typename Part>
void Stack(const Part& from, size_t member, Stacked<Part>& to) {
  if (member == 0) TakeLabels(from, to.columns);
  if (!SameLabels(from, to.columns)) {
    RejectMember(member, "names of parameters",
                 "differ from those of member 0");
  }
  const size_t before = to.columns.step.size();
  for (const Column& column : ColumnsOf<Part>()) {
    if (column.role == Role::kLabels) continue;
    MutableView(to.columns)
        .WithValues(column, [&]<typename T>(std::vector<T>& target) {
          const std::vector<T>& source = View(from).Values<T>(column);
          const bool had_it = before == 0 || !target.empty();
          if (!from.step.empty() && had_it == source.empty() && before > 0) {
            RejectMember(member, column.field.name,
                         source.empty() ? "is empty" : "is there");
          }
          target.insert(target.end(), source.begin(), source.end());
        });
  }
  to.member.insert(to.member.end(), from.step.size(),
                   static_cast<int64_t>(member));
}

Tables TablesOf(const Ensemble& ensemble) {
  Tables tables;
  tables.kind = EnsembleKindName(ensemble.kind);
  tables.run_schema_version = ensemble.run_schema_version;
  tables.provenance = ensemble.provenance;
  tables.reference_provenance = ensemble.reference_provenance;
  tables.tensors = ensemble.tensors;
  for (size_t i = 0; i < ensemble.members.size(); ++i) {
    const EnsembleMember& member = ensemble.members[i];
    tables.seeds.push_back(member.seed);
    tables.perturbations.push_back(member.perturbation);
    Stack(member.steps, i, tables.steps);
    Stack(member.reference_steps, i, tables.reference_steps);
    Stack(member.parameters, i, tables.parameters);
    Stack(member.reference_parameters, i, tables.reference_parameters);
    Stack(member.precision, i, tables.precision);
    Stack(member.routing_flips, i, tables.routing_flips);
  }
  return tables;
}

/// Returns the rows of one member.
template <typename Part>
Part Unstack(const Stacked<Part>& from, size_t member) {
  const auto [first, last] = std::equal_range(
      from.member.begin(), from.member.end(), static_cast<int64_t>(member));
  const size_t rows = from.member.size();
  const size_t begin = static_cast<size_t>(first - from.member.begin());
  const size_t end = static_cast<size_t>(last - from.member.begin());
  Part to;
  TakeLabels(from.columns, to);
  for (const Column& column : ColumnsOf<Part>()) {
    if (column.role == Role::kLabels) continue;
    MutableView(to).WithValues(column, [&]<typename T>(std::vector<T>& target) {
      const std::vector<T>& source = View(from.columns).Values<T>(column);
      if (source.empty()) return;
      const size_t width = source.size() / rows;
      target.assign(source.begin() + static_cast<ptrdiff_t>(begin * width),
                    source.begin() + static_cast<ptrdiff_t>(end * width));
    });
  }
  return to;
}

Ensemble EnsembleOf(const Tables& tables, EnsembleKind kind) {
  Ensemble ensemble;
  ensemble.kind = kind;
  ensemble.run_schema_version = tables.run_schema_version;
  ensemble.provenance = tables.provenance;
  ensemble.reference_provenance = tables.reference_provenance;
  ensemble.tensors = tables.tensors;
  for (size_t i = 0; i < tables.seeds.size(); ++i) {
    ensemble.members.push_back(
        {.perturbation = tables.perturbations[i],
         .seed = tables.seeds[i],
         .steps = Unstack(tables.steps, i),
         .reference_steps = Unstack(tables.reference_steps, i),
         .parameters = Unstack(tables.parameters, i),
         .reference_parameters = Unstack(tables.reference_parameters, i),
         .precision = Unstack(tables.precision, i),
         .routing_flips = Unstack(tables.routing_flips, i)});
  }
  return ensemble;
}

/// Describes a table whose rows each name their member.
template <typename Part>
Group TableOf(const char* name, const char* description,
              Stacked<Part> Tables::*table, bool required = true) {
  Columns columns = {{{"member", "1", "Place in /members", Domain::Count()},
                      &Stacked<Part>::member}};
  for (Column& column : PartOf(&Stacked<Part>::columns, ColumnsOf<Part>())) {
    const bool is_plain = column.axes.empty() && column.role != Role::kLabels;
    column.required = required && is_plain;
    columns.push_back(std::move(column));
  }
  return {name, description, 1, PartOf(table, std::move(columns))};
}

/// The attributes of the reference's runs are called "reference_<name>".
Group ReferenceGroup() {
  Group group = PartOf(&Tables::reference_provenance, AttributeGroup());
  for (Column& column : group.columns) {
    column.field.name = "reference_" + column.field.name;
  }
  return group;
}

Group VersionGroup() {
  using T = Tables;
  return {
      "",
      "",
      1,
      {{Role::kOwnVersion,
        {"ensemble_schema_version", "1", "Version of this layout",
         Domain::Count(1)},
        kEnsembleSchemaVersion},
       {Role::kRunVersion,
        {"run_schema_version", "1",
         "Version of the run log's layout that attributes and /steps follow",
         Domain::Count(1)},
        kSchemaVersion,
        &T::run_schema_version},
       {{"kind", "", "`benign` or `seeds`", Domain::Text()}, &T::kind}}};
}

Schema MakeTableSchema() {
  using T = Tables;
  return {
      VersionGroup(),
      PartOf(&T::provenance, AttributeGroup()),
      PartOf(&T::provenance, OriginGroup()),
      ReferenceGroup(),
      {"members",
       "One row per good run",
       1,
       {{{"seed", "1", "Seed of the run", Domain::Seed()}, &T::seeds},
        Column({"perturbation", "", "What the run differs in; empty: seed",
                Domain::Text()},
               &T::perturbations)
            .Required()}},
      {"tensors",
       "Tensors that /precision refers to",
       1,
       {{{"name", "", "<module>_<tensor>", Domain::Text()}, &T::tensors}}},
      TableOf("steps", "First steps of each member", &T::steps, false),
      TableOf("reference_steps", "First steps of what it is compared with",
              &T::reference_steps, false),
      TableOf("parameters", "Each parameter in those steps", &T::parameters),
      TableOf("reference_parameters", "Likewise of the reference",
              &T::reference_parameters),
      TableOf("precision", "Each tensor of each teacher-forced step",
              &T::precision),
      TableOf("routing_flips", "Each MoE layer of each teacher-forced step",
              &T::routing_flips),
  };
}

const Schema& TableSchema() {
  static const Schema schema = MakeTableSchema();
  return schema;
}

/// Adds the digest of all tables.
Schema FileTables() {
  return Joined(
      {TableSchema(),
       {Group("", "", 1,
              {{{"digest", "", "Digest of all but clocks", Domain::Text()},
                &Tables::digest}})}});
}

std::string DigestOfTables(const Tables& tables) {
  return ContentDigest(TableSchema(), View(tables));
}

[[noreturn]] void Reject(const std::string& path, std::string_view what,
                         std::string_view found, std::string_view rule) {
  ThrowError(ErrorKind::kFormat,
             "{}: {} is {}, but must be {}. The file is damaged or no null "
             "ensemble; build it again.",
             path, what, found, rule);
}

template <typename Part>
void CheckMembers(const std::string& path, const char* group, size_t members,
                  const Stacked<Part>& table) {
  const auto& member = table.member;
  const bool inside =
      member.empty() ||
      (member.front() >= 0 && member.back() < static_cast<int64_t>(members));
  if (inside && std::is_sorted(member.begin(), member.end())) return;
  Reject(path, fmt::format("/{}/member", group), "out of order",
         fmt::format("ascending within the {} members", members));
}

bool CountsFromOne(const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] != static_cast<int64_t>(i) + 1) return false;
  }
  return true;
}

EnsembleKind CheckedKind(const std::string& path, const Tables& tables) {
  for (const auto kind : {EnsembleKind::kBenign, EnsembleKind::kSeeds}) {
    if (tables.kind == EnsembleKindName(kind)) return kind;
  }
  Reject(path, "attribute kind", "'" + tables.kind + "'",
         "`benign` or `seeds`");
}

/// Each member gets the labels of the whole table.
void CheckLabels(const std::string& path, const Tables& tables) {
  size_t bytes = sizeof(EnsembleMember);
  for (const auto* names : {&tables.parameters.columns.names,
                            &tables.reference_parameters.columns.names}) {
    for (const std::string& name : *names) {
      bytes += sizeof(std::string) + name.size();
    }
  }
  const size_t members = tables.seeds.size();
  if (members <= kMaxMemberBytes / bytes) return;
  Reject(path, "the number of members", fmt::to_string(members),
         fmt::format("at most {}, which with their names of parameters take "
                     "{} MiB",
                     kMaxMemberBytes / bytes, kMaxMemberBytes >> 20));
}

void Check(const std::string& path, const Tables& tables) {
  CheckLabels(path, tables);
  const size_t members = tables.seeds.size();
  CheckMembers(path, "steps", members, tables.steps);
  CheckMembers(path, "reference_steps", members, tables.reference_steps);
  CheckMembers(path, "parameters", members, tables.parameters);
  CheckMembers(path, "reference_parameters", members,
               tables.reference_parameters);
  CheckMembers(path, "precision", members, tables.precision);
  CheckMembers(path, "routing_flips", members, tables.routing_flips);
  for (const int64_t place : tables.precision.columns.tensor) {
    if (place < 0 || place >= static_cast<int64_t>(tables.tensors.size())) {
      Reject(path, "/precision/tensor", fmt::to_string(place),
             fmt::format("within the {} tensors", tables.tensors.size()));
    }
  }
  const std::string found = DigestOfTables(tables);
  if (found != tables.digest) Reject(path, "the digest", found, tables.digest);
}

}  // namespace

std::string_view EnsembleKindName(EnsembleKind kind) {
  return kind == EnsembleKind::kBenign ? "benign" : "seeds";
}

namespace {

/// Says which columns contradict each other in the first steps of one run.
std::vector<std::string> BrokenRun(const StepColumns& steps,
                                   const ParameterColumns& parameters,
                                   const Provenance& provenance) {
  if (parameters.step != steps.step) {
    return {
        fmt::format("/parameters has {} rows, which are not those of the "
                    "{} in /steps",
                    parameters.step.size(), steps.step.size())};
  }
  RunLog log;
  log.provenance = provenance;
  log.steps = steps;
  log.parameters = parameters;
  std::vector<std::string> broken = BrokenInSteps(log);
  const int64_t planned = provenance.quantized_gemms_per_step;
  for (size_t i = 0; i < steps.quantized_gemms.size(); ++i) {
    if (steps.quantized_gemms[i] == planned) continue;
    broken.push_back(fmt::format(
        "/steps/quantized_gemms is {} at step {}, but the recipe asks for {}",
        steps.quantized_gemms[i], steps.step[i], planned));
    break;
  }
  return broken;
}

/// Requires of rows of teacher-forced steps that each place occurs once and
/// lies within the run.
std::string BrokenProbe(const EnsembleMember& member, int64_t steps_planned) {
  const auto wrong = [&](const char* group, const std::vector<int64_t>& step,
                         const std::vector<int64_t>& place) -> std::string {
    std::set<std::pair<int64_t, int64_t>> seen;
    for (size_t i = 0; i < step.size(); ++i) {
      if (step[i] <= steps_planned && seen.emplace(step[i], place[i]).second) {
        continue;
      }
      return fmt::format("/{} has place {} of step {} of {} {}", group,
                         place[i], step[i], steps_planned,
                         step[i] > steps_planned ? "" : "twice");
    }
    return "";
  };
  const std::string text =
      wrong("precision", member.precision.step, member.precision.tensor);
  return text.empty() ? wrong("routing_flips", member.routing_flips.step,
                              member.routing_flips.layer)
                      : text;
}

/// Says which rules one member breaks.
std::vector<std::string> BrokenMember(const Ensemble& ensemble, size_t i) {
  const EnsembleMember& member = ensemble.members[i];
  std::vector<std::string> broken;
  for (const auto& [group, step] :
       {std::pair("steps", &member.steps.step),
        std::pair("reference_steps", &member.reference_steps.step),
        std::pair("parameters", &member.parameters.step),
        std::pair("reference_parameters", &member.reference_parameters.step)}) {
    if (CountsFromOne(*step)) continue;
    broken.push_back(
        fmt::format("/{}/step of member {} does not count 1, 2, 3, but "
                    "these are a run's first steps",
                    group, i));
  }
  if (!broken.empty()) return broken;
  const auto add = [&](const char* what, const std::string& text) {
    broken.push_back(fmt::format("member {}: {}{}", i, what, text));
  };
  for (const std::string& text :
       BrokenRun(member.steps, member.parameters, ensemble.provenance)) {
    add("", text);
  }
  for (const std::string& text :
       BrokenRun(member.reference_steps, member.reference_parameters,
                 ensemble.reference_provenance)) {
    add("reference: ", text);
  }
  const std::string probe =
      BrokenProbe(member, ensemble.provenance.steps_planned);
  if (!probe.empty()) add("", probe);
  return broken;
}

/// Checks another program's runs, whose steps are those that were logged.
std::vector<Violation> CheckForeign(const Ensemble& ensemble) {
  std::vector<Violation> violations;
  for (size_t i = 0; i < ensemble.members.size(); ++i) {
    const EnsembleMember& member = ensemble.members[i];
    for (const StepColumns* steps : {&member.steps, &member.reference_steps}) {
      RunLog log;
      log.provenance.origin = ensemble.provenance.origin;
      log.steps = *steps;
      for (const Violation& found : CheckDomains(log)) {
        violations.push_back(
            {found.fault, fmt::format("member {}: {}", i, found.message)});
      }
    }
  }
  return violations;
}

}  // namespace

std::vector<Violation> CheckDomains(const Ensemble& ensemble) {
  if (!ensemble.provenance.Knows(Fact::kRecording))
    return CheckForeign(ensemble);
  const Tables tables = TablesOf(ensemble);
  ColumnCheck check(View(tables), ensemble.run_schema_version,
                    [](When) { return true; });
  check.Check(TableSchema());
  if (!check.violations.empty()) return std::move(check.violations);
  for (size_t i = 0; i < ensemble.members.size(); ++i) {
    for (const std::string& text : BrokenMember(ensemble, i)) {
      check.violations.push_back(
          {Fault::kFile, fmt::format("{}. {}", text, RemedyOf(Fault::kFile))});
    }
  }
  return std::move(check.violations);
}

void WriteEnsemble(const Ensemble& ensemble,
                   const std::filesystem::path& path) {
  Tables tables = TablesOf(ensemble);
  tables.digest = DigestOfTables(tables);
  hdf5::WriteSealedFile(
      path, hdf5::kEnsembleFile, [&](const hdf5::Handle& file) {
        WriteColumns(file, std::string(hdf5::kEnsembleFile.name), FileTables(),
                     View(tables));
      });
}

Ensemble ReadEnsemble(const std::filesystem::path& path) {
  Tables tables;
  hdf5::ReadCharge charge = hdf5::ReadSealedFile(
      path, hdf5::kEnsembleFile, [&](const hdf5::Object& file) {
        ReadColumns(file, path.string(), hdf5::kEnsembleFile, FileTables(),
                    MutableView(tables));
      });
  const EnsembleKind kind = CheckedKind(path.string(), tables);
  Check(path.string(), tables);
  Ensemble ensemble = EnsembleOf(tables, kind);
  ensemble.digest = std::move(tables.digest);
  ensemble.charge = std::move(charge);
  return ensemble;
}

}  // namespace isoloss::runlog

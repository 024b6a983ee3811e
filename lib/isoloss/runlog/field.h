// Describes the datasets and attributes of a log: their names, units and
// meanings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isoloss/runlog/comparing.h"
#include "isoloss/runlog/domain.h"

namespace isoloss::runlog {

/// Says which runs record a column; recording.h decides whether one run does.
enum class When {
  kAlways,
  kExperts,     ///< there are MoE layers
  kTransport,   ///< rows travel between ranks
  kPairs,       ///< kTransport, and an evaluation follows a step
  kDigests,     ///< `log.digests_*` ask for some
  kStatistics,  ///< `log.statistics_*` ask for some
  kTensors,     ///< one of the two
  kRouting,     ///< `log.routing`
  kReplay,      ///< `routing.mode = "replay"`
};

/// Gives a dataset or attribute its name, unit, meaning and domain.
struct Field {
  std::string name;
  const char* unit;
  const char* description;
  Domain domain;
  int64_t since = 1;  ///< version of the run log's layout that brought it
  /// A clock, an accident or a circumstance is not reproducible: equal runs
  /// need not have equal values.
  bool reproducible = true;
  When when = When::kAlways;
  /// An optional attribute is not written if it is empty.
  bool optional = false;
  // By default a column is compared to the bit, after all columns that have a
  // turn.
  Turn turn = Turn::kMeasured;
  Scale scale = Scale::kOwn;
  Scope scope = Scope::kTraining;
  const char* shown = nullptr;  ///< its name in reports, if not `name`

  Field Since(int64_t version) const {
    Field field = *this;
    field.since = version;
    return field;
  }
  /// The field tells who made the run, where and how, and may differ if the run
  /// is repeated.
  Field Circumstance() const {
    Field field = *this;
    field.reproducible = false;
    return field;
  }
  Field Optional() const {
    Field field = *this;
    field.optional = true;
    return field;
  }
  Field Only(When condition) const {
    Field field = *this;
    field.when = condition;
    return field;
  }
  Field At(Turn place, Scale share = Scale::kOwn) const {
    Field field = *this;
    field.turn = place;
    field.scale = share;
    return field;
  }
  Field On(Scope what) const {
    Field field = *this;
    field.scope = what;
    return field;
  }
  Field Shown(const char* title) const {
    Field field = *this;
    field.shown = title;
    return field;
  }
};

/// Returns the text of a file's attribute as it may be shown: Printable, and on
/// one line unless the attribute has many lines. A line end elsewhere would
/// forge lines of a report.
std::string ShownText(const Field& field, std::string_view text);

}  // namespace isoloss::runlog

// Defines a level of the gate and lists all levels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/compare/integrity.h"

namespace isoloss::gate {

struct Evidence;
struct LevelFindings;
struct Policy;

/// Lists the levels of levels.def. A program with levels of its own numbers
/// them from kFirstOther. A policy file can't name those levels, so the
/// program sets Policy::levels itself.
enum class LevelId : uint8_t {
#define ISOLOSS_LEVEL(name) name,
#include "isoloss/gate/levels.def"
#undef ISOLOSS_LEVEL
  kFirstOther = 128,
};

/// Says what a level reads. This decides when it can be left out.
enum class Needs {
  kRuns,       ///< any runs: it always runs
  kSoundRuns,  ///< left out if L0 found the runs broken; of a regression also
               ///< if all bits are equal
  kProbes,     ///< looks at the program itself, even if all bits are equal
};

/// Says which questions the level may decide, alone or with other levels. L5
/// always takes part in a decision on precision.
enum class Decides {
  kNeither,     ///< it only measures: it always runs, and never gates
  kNoneAlone,   ///< it guards the others: it always runs, and always gates
  kRegression,  ///< what it says of precision is a measure
  kPrecision,   ///< it says nothing of regression
  kBoth,
};

/// Describes one level. To add a level, write a file that defines it and a
/// line of levels.def; docs/gate.md has a row for each level.
struct Level {
  LevelId id;
  std::string_view name;        ///< in policies, verdicts and documents: "L2"
  std::string_view title = {};  ///< what people call it: "oracle"
  std::string_view question;    ///< what it asks, as in docs/gate.md
  Needs needs;
  Decides decides;
  /// Returns the level's findings. RunLadder() writes the level's name and
  /// titles into the checks. A level without evidence returns no check.
  LevelFindings (*run)(const Evidence& evidence, const Policy& policy);
  /// Says how to make the level's evidence, for a verdict that lacks it; "" if
  /// runs suffice.
  std::string_view remedy = {};
  /// Says the same for runs that another program trained.
  std::string_view foreign_remedy = {};
};

/// Returns all levels of levels.def.
std::span<const Level* const> Ladder();

/// Returns the name of a level of levels.def; aborts for any other level.
std::string_view LevelName(LevelId id);
std::string_view LevelTitle(LevelId id);

/// Can a pass of this level answer the question?
bool CanDecide(const Level& level, compare::Question question);

}  // namespace isoloss::gate

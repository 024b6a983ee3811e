// Declares options that tell a command how to read other programs' logs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "isoloss/compare/pair.h"
#include "isoloss/foreign/align.h"
#include "isoloss/foreign/read.h"

namespace isoloss::cli {

struct ForeignArguments {
  foreign::ReadOptions read;
  std::optional<int64_t> until;
  std::string align;  ///< "": not asked for, by step

  void Declare(CLI::App& app);
  foreign::AlignOptions Alignment() const;
  /// Refuses options that would have no effect.
  /// Errors   ConfigError if names are given, but no run is foreign.
  void RequireUse(const std::vector<compare::Run>& runs) const;
};

}  // namespace isoloss::cli

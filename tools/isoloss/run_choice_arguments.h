// Declares arguments of commands whose runs can be divided among machines.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "arguments.h"
#include "isoloss/campaign/run_list.h"

namespace isoloss::cli {

struct RunChoiceArguments {
  std::vector<std::string> only;
  std::filesystem::path list;  ///< file of --list-runs; empty: not asked for

  void Declare(CLI::App& app);
  bool chosen() const { return !only.empty(); }
  campaign::RunChoice choice() const { return campaign::RunChoice(only); }
};

}  // namespace isoloss::cli

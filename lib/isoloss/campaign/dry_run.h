// --dry-run: what a command that trains would refuse, do and take.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// Walks the checks of the runs that would be trained, each arm's up to its
/// first step, then prints the resolved experiment, what each GEMM of each arm
/// gets, and what the runs take that are not kept: time, memory, disk. Leaves
/// no file. Errors   as train::ExecuteRuns.
void DryRun(const train::Experiment& experiment,
            const std::vector<train::Run>& runs, const corpus::Corpus& corpus,
            const std::filesystem::path& folder,
            const std::function<train::RunHooks(const train::Run&)>& hooks,
            train::Leftovers leftovers);

/// One line, or several where the terminal is narrower, that TOML takes for
/// comments: `name` of at most 6 characters, and what the command takes of it.
void PrintCostLine(const char* name, const std::string& text);

}  // namespace isoloss::campaign

// Implements --dry-run, which says what a command that trains would refuse, do
// and take.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// Walks the checks of the runs that would be trained, each arm's up to its
/// first step. Then prints the resolved experiment and what each GEMM of each
/// arm gets. At last prints the time, memory and disk for runs that are not
/// kept. Leaves no file.
/// Errors   as train::ExecuteRuns.
void DryRun(const train::Experiment& experiment,
            const std::vector<train::Run>& runs, const corpus::Corpus& corpus,
            const std::filesystem::path& folder,
            const std::function<train::RunHooks(const train::Run&)>& hooks,
            train::Leftovers leftovers);

/// Prints what the command takes of `name`, which has at most 6 characters. It
/// is one line, or several in a narrow terminal, that TOML takes for comments.
void PrintCostLine(const char* name, const std::string& text);

}  // namespace isoloss::campaign

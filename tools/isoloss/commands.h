// The sub-commands of the program: one file each, one line each in kCommands.
#pragma once

#include <functional>
#include <span>

#include "arguments.h"
#include "isoloss/campaign/exit_code.h"

namespace isoloss::cli {

using campaign::ExitCode;

/// What a sub-command runs once its arguments are parsed.
using Action = std::function<ExitCode()>;

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  /// Declares its arguments on `app` and returns what to run.
  Action (*declare)(CLI::App& app);
};

/// Adds sub-commands, of which one must be given; runs that one. Each one's
/// help ends with its example and the exit codes.
Action DeclareCommands(CLI::App& app, std::span<const Command> commands);

Action DeclareVerify(CLI::App& app);
Action DeclareRun(CLI::App& app);
Action DeclareCompare(CLI::App& app);
Action DeclareGate(CLI::App& app);
Action DeclareParity(CLI::App& app);
Action DeclareProbe(CLI::App& app);
Action DeclareShow(CLI::App& app);
Action DeclareWatch(CLI::App& app);
Action DeclareExport(CLI::App& app);
Action DeclareGolden(CLI::App& app);
Action DeclareEnsemble(CLI::App& app);
Action DeclareMutants(CLI::App& app);

inline constexpr Command kCommands[] = {
    {"verify", "Run all arms of an experiment, compare, judge, report",
     "isoloss verify experiments/mxfp8_vs_bf16/experiment.toml "
     "--set train.steps=600",
     DeclareVerify},
    {"run", "Run arms of an experiment and write their logs; no verdict",
     "isoloss run experiments/mxfp8_vs_bf16/experiment.toml --arm mxfp8",
     DeclareRun},
    {"gate", "Judge run logs: pass, fail, inconclusive or invalid",
     "isoloss gate runs/mxfp8_vs_bf16/*.h5", DeclareGate},
    {"compare", "Compare two run logs; names the first step that differs",
     "isoloss compare runs/mxfp8_vs_bf16/bf16-seed1.h5 "
     "runs/mxfp8_vs_bf16/mxfp8-seed1.h5",
     DeclareCompare},
    {"parity", "Compare a run on many ranks with that on one, to the bit",
     "isoloss parity experiments/mxfp8_vs_bf16/experiment.toml --arm mxfp8 "
     "--set parallel.ranks=8",
     DeclareParity},
    {"probe", "Compare every tensor of an arm's first steps with an oracle",
     "isoloss probe experiments/mxfp8_vs_bf16/experiment.toml --arm mxfp8",
     DeclareProbe},
    {"show", "Summarise run logs, probe logs and null ensembles",
     "isoloss show runs/mxfp8_vs_bf16/mxfp8-seed1.h5", DeclareShow},
    {"watch", "Watch runs while they are made",
     "isoloss watch runs/mxfp8_vs_bf16", DeclareWatch},
    {"export", "Write a run log as CSV or JSON lines",
     "isoloss export runs/mxfp8_vs_bf16/mxfp8-seed1.h5 --format csv "
     "--group parameters",
     DeclareExport},
    {"golden", "Check or replace golden runs, whose every bit is kept",
     "isoloss golden check --exact", DeclareGolden},
    {"ensemble", "Make a null ensemble: good runs, whose spread sets limits",
     "isoloss ensemble build golden/curves/nano/experiment.toml --runs 40 "
     "--out benign.h5",
     DeclareEnsemble},
    {"mutants", "List the known bugs that can be planted in a run",
     "isoloss mutants list --group scale", DeclareMutants},
};

}  // namespace isoloss::cli

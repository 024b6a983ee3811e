#include "isoloss/doctor/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/doctor/launchers.h"
#include "isoloss/doctor/machine.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/transport/launch.h"
#include "isoloss/transport/mpi_job.h"

namespace isoloss::doctor {
namespace {

std::string Plural(size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

HealthCheck Program(const DoctorOptions& options) {
  const BuildInfo build = GetBuildInfo();
  std::string digest;
  if (!options.known.empty()) {
    digest = DigestToHex(options.known.front().digest);
  }
  HealthCheck check{
      .topic = "program",
      .text = fmt::format("isoloss {}, commit {}, {}", build.version,
                          build.commit, build.compiler),
      .values = {{"version", build.version},
                 {"commit", build.commit},
                 {"compiler", build.compiler},
                 {"numerics_digest", digest}}};
  if (build.commit == "unknown" || build.commit.ends_with("-dirty")) {
    check.health = Health::kNote;
    check.remedy = "Logs can't name their source. Build from a clean clone.";
  }
  return check;
}

HealthCheck Kernels() {
  const std::vector<std::string> targets = kernels::SupportedTargets();
  const std::string used = kernels::ActiveTarget();
  const std::string forced = FromEnvironment("ISOLOSS_FORCE_KERNEL");
  HealthCheck check{
      .topic = "kernels",
      .text = fmt::format("{} is used; this processor has {}", used,
                          fmt::join(targets, ", ")),
      .values = {{"used", used},
                 {"available", fmt::format("{}", fmt::join(targets, ", "))},
                 {"forced", forced}}};
  if (!forced.empty() && used != targets.front()) {
    check.health = Health::kNote;
    check.text = fmt::format(
        "ISOLOSS_FORCE_KERNEL forces {}; this processor "
        "has {}",
        used, fmt::join(targets, ", "));
    check.remedy = fmt::format("Unset it to use {}: the same bits, and faster.",
                               targets.front());
  } else if (targets.size() == 1) {
    check.health = Health::kNote;
    check.remedy =
        "There is no vector code for it: training takes ten times as long.";
  }
  return check;
}

/// Examines this thread, from which all other threads inherit the mode.
HealthCheck FloatingPoint() {
  volatile float tiny = 1e-40F;
  volatile float kept = tiny * 1.0F;
  const bool nearest = std::fegetround() == FE_TONEAREST;
  const bool subnormals = kept != 0.0F;
  HealthCheck check{
      .topic = "arithmetic",
      .text = "rounds to the nearest even number and keeps subnormals",
      .values = {{"rounds_to_nearest", nearest ? "yes" : "no"},
                 {"keeps_subnormals", subnormals ? "yes" : "no"}}};
  if (nearest && subnormals) return check;
  check.health = Health::kProblem;
  check.text = fmt::format(
      "{}, which something outside of this program has set",
      nearest ? "subnormal numbers become zero"
              : "sums and products are not rounded to the nearest number");
  check.remedy =
      "Unset LD_PRELOAD; no library in it may be built with -ffast-math.";
  return check;
}

HealthCheck SelfTestCheck(const DoctorOptions& options) {
  const SelfTest test = RunSelfTest(options.known);
  HealthCheck check{
      .topic = "self-test",
      .text = fmt::format(
          "{} of {} have the known bits: kernels {}; 1, {} threads",
          Plural(static_cast<size_t>(test.trainings), "training"),
          Plural(options.known.size(), "recipe"), fmt::join(test.targets, ", "),
          fmt::join(test.threads, ", ")),
      .values = {{"trainings", std::to_string(test.trainings)},
                 {"wrong", std::to_string(test.wrong.size())}}};
  for (const WrongNumerics& wrong : test.wrong) {
    check.values.emplace_back(
        fmt::format("{} on {} with {} threads", wrong.recipe, wrong.target,
                    wrong.threads),
        fmt::format("{:016x}, known is {:016x}", wrong.found, wrong.expected));
  }
  if (!test.failures.empty()) {
    check.health = Health::kNote;
    check.text +=
        fmt::format("; not tested: {}", fmt::join(test.failures, " "));
    check.remedy = "Runs on these GPUs end with this error.";
  }
  if (test.wrong.empty()) return check;
  check.health = Health::kProblem;
  check.text = DiagnosisOf(test);
  check.remedy = "Trust no result. docs/install.md says what it may be.";
  return check;
}

/// Returns "4.1.4" for "Open MPI v4.1.4, package: ...".
std::string FirstNumber(const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  const size_t begin = text.find_first_of(kDigits);
  if (begin == std::string::npos) return "";
  const size_t end = text.find_first_not_of("0123456789.", begin);
  return text.substr(begin, end - begin);
}

HealthCheck Mpi() {
  const std::vector<transport::MpiModuleState> modules =
      transport::ExamineMpiModules();
  HealthCheck check{.topic = "MPI"};
  std::vector<std::string> loaded;
  std::string broken;
  for (const transport::MpiModuleState& module : modules) {
    if (module.error.empty()) {
      loaded.push_back(
          fmt::format("{} {}", module.launcher, FirstNumber(module.version)));
    } else {
      broken = module.launcher;
      check.remedy =
          "Its library does not load: install it, or start jobs by another.";
    }
    check.values.emplace_back(
        module.launcher, module.error.empty() ? module.version : module.error);
  }
  if (modules.empty()) {
    check.health = Health::kNote;
    check.text = "this build has no module, so that each job is one process";
    check.remedy = "Install libopenmpi-dev or libmpich-dev, and build again.";
    return check;
  }
  check.text = fmt::format(
      "modules that load: {}",
      loaded.empty() ? "none" : fmt::format("{}", fmt::join(loaded, ", ")));
  if (!broken.empty()) {
    check.health = Health::kNote;
    check.text += fmt::format("; that of {} does not", broken);
  }
  return check;
}

/// Returns a launcher if this build has no module for its library.
std::string WithoutModule(const std::vector<Launcher>& launchers) {
  const std::vector<std::string> modules = transport::MpiModules();
  const auto has = [&](const char* name) {
    return std::ranges::count(modules, name) > 0;
  };
  for (const Launcher& launcher : launchers) {
    if (launcher.library == "Open MPI" && !has("openmpi")) return launcher.name;
    if (launcher.library == "MPICH" && !has("mpich")) return launcher.name;
  }
  return "";
}

HealthCheck Launchers() {
  const std::vector<Launcher> launchers = FindMpiLaunchers();
  HealthCheck check{.topic = "launchers"};
  std::vector<std::string> shown;
  for (const Launcher& launcher : launchers) {
    const std::string says =
        launcher.library.empty()
            ? "says no version that is known"
            : fmt::format("{} {}", launcher.library, launcher.version);
    shown.push_back(fmt::format("{} ({})", launcher.name, says));
    check.values.emplace_back(
        launcher.name, fmt::format("{}: {}", launcher.path.string(), says));
  }
  const transport::Launch launch = transport::DetectLaunch();
  if (launchers.empty()) {
    check.health = Health::kNote;
    check.text = "neither mpirun nor mpiexec is in PATH";
    check.remedy = "Jobs of several processes need openmpi-bin or mpich.";
    return check;
  }
  check.text = fmt::format("{}", fmt::join(shown, ", "));
  if (launch.processes > 1) {
    check.text += fmt::format("; this is process {} of {}", launch.process,
                              launch.processes);
  }
  if (const std::string name = WithoutModule(launchers); !name.empty()) {
    check.health = Health::kNote;
    check.remedy = fmt::format(
        "Jobs that {} starts fail: it has no MPI module here.", name);
  }
  return check;
}

HealthCheck SlurmCheck() {
  const Slurm slurm = ExamineSlurm();
  HealthCheck check{.topic = "Slurm",
                    .values = {{"found", slurm.found ? "yes" : "no"},
                               {"version", slurm.version},
                               {"job", slurm.job},
                               {"tasks", slurm.tasks},
                               {"nodes", slurm.nodes}}};
  if (!slurm.found) {
    check.text =
        slurm.job.empty()
            ? "srun is not in PATH, which one machine does not need"
            : fmt::format("inside job {}, but srun is not in PATH", slurm.job);
    if (!slurm.job.empty()) {
      check.health = Health::kNote;
      check.remedy = "Start jobs by mpirun, or add Slurm's folder to PATH.";
    }
    return check;
  }
  check.text = fmt::format(
      "srun{}, {}", slurm.version.empty() ? "" : " " + slurm.version,
      slurm.job.empty()
          ? "outside of an allocation"
          : fmt::format("inside job {} of {} nodes and {} tasks", slurm.job,
                        slurm.nodes.empty() ? "?" : slurm.nodes,
                        slurm.tasks.empty() ? "?" : slurm.tasks));
  return check;
}

HealthCheck Libraries(const DoctorOptions& options) {
  std::vector<LibraryVersion> libraries = LibraryVersions();
  libraries.insert(libraries.end(), options.more_libraries.begin(),
                   options.more_libraries.end());
  HealthCheck check{.topic = "libraries"};
  std::vector<std::string> shown;
  std::vector<std::string> differing;
  for (const LibraryVersion& library : libraries) {
    const std::string& version =
        library.running.empty() ? library.compiled : library.running;
    shown.push_back(fmt::format("{} {}", library.name, version));
    check.values.emplace_back(library.name, version);
    if (library.Differs()) {
      differing.push_back(
          fmt::format("{} (compiled with {})", library.name, library.compiled));
    }
  }
  check.text = fmt::format("{}", fmt::join(shown, ", "));
  if (!differing.empty()) {
    check.health = Health::kNote;
    check.text += fmt::format("; of another release than at compile time: {}",
                              fmt::join(differing, ", "));
    check.remedy = "Build again, so that headers and libraries agree.";
  }
  return check;
}

HealthCheck Processors(const Machine& machine) {
  HealthCheck check{.topic = "processors",
                    .text = fmt::format("{} of {} may be used",
                                        machine.processors, machine.online),
                    .values = {{"usable", std::to_string(machine.processors)},
                               {"online", std::to_string(machine.online)}}};
  if (!machine.limits.processors) return check;
  const double quota = *machine.limits.processors;
  check.text += fmt::format(", for the time of {:.3g} (control group)", quota);
  check.values.emplace_back("quota", fmt::format("{:g}", quota));
  if (quota < machine.processors) {
    check.health = Health::kNote;
    check.remedy = fmt::format(
        "Train with --set parallel.workers={:.0f}: more threads "
        "are halted again and again.",
        std::max(1.0, std::floor(quota)));
  }
  return check;
}

HealthCheck Memory(const Machine& machine) {
  constexpr double kLittle = 0x1p29;  // two runs of dsv3-small side by side
  HealthCheck check{
      .topic = "memory",
      .text = fmt::format("{} of {} are free",
                          campaign::SizeText(machine.available_bytes),
                          campaign::SizeText(machine.memory_bytes)),
      .values = {
          {"bytes", fmt::format("{:.0f}", machine.memory_bytes)},
          {"free_bytes", fmt::format("{:.0f}", machine.available_bytes)}}};
  double usable = machine.available_bytes;
  if (const auto limit = machine.limits.memory_bytes;
      limit && *limit < machine.memory_bytes) {
    usable = std::min(usable, *limit);
    check.text += fmt::format(", at most {} for this control group",
                              campaign::SizeText(*limit));
    check.values.emplace_back("limit_bytes", fmt::format("{:.0f}", *limit));
  }
  if (usable < kLittle) {
    check.health = Health::kNote;
    check.remedy =
        "Train small models: `verify --dry-run` says what they need.";
  }
  return check;
}

HealthCheck DiskCheck(const DoctorOptions& options) {
  constexpr double kLittle = 0x1p28;  // a verification of the demo takes 30 MiB
  const Disk disk = ExamineDisk(options.folder);
  HealthCheck check{
      .topic = "disk",
      .text =
          fmt::format("{} are free for {}", campaign::SizeText(disk.free_bytes),
                      options.folder.string()),
      .values = {{"folder", options.folder.string()},
                 {"existing", disk.existing.string()},
                 {"free_bytes", fmt::format("{:.0f}", disk.free_bytes)}}};
  if (!disk.problem.empty()) {
    check.health = Health::kProblem;
    check.text =
        fmt::format("{} can't take results: {}: {}", options.folder.string(),
                    disk.existing.string(), disk.problem);
    check.remedy = "Stand in a folder of your own, or give commands --out.";
  } else if (disk.free_bytes < kLittle) {
    check.health = Health::kNote;
    check.remedy = "Make room; `verify --dry-run` says what is needed.";
  }
  return check;
}

HealthCheck Terminal() {
  const document::TextStyle style = report::TerminalStyle(/*ascii=*/false);
  const bool is_terminal = report::TerminalWidth().has_value();
  HealthCheck check{
      .topic = "terminal",
      .text = fmt::format("{}{} columns, {}, {}",
                          is_terminal ? "" : "output is to no terminal: ",
                          style.width, style.ascii ? "ASCII" : "UTF-8",
                          style.color ? "colours" : "no colours"),
      .values = {{"terminal", is_terminal ? "yes" : "no"},
                 {"columns", std::to_string(style.width)},
                 {"utf8", style.ascii ? "no" : "yes"},
                 {"colours", style.color ? "yes" : "no"}}};
  if (style.ascii) {
    check.health = Health::kNote;
    check.remedy = "Set LC_ALL=C.UTF-8 for finer curves.";
  } else if (is_terminal && style.width < 80) {
    check.health = Health::kNote;
    check.remedy = "Make it 80 columns wide: reports are shorter then.";
  }
  return check;
}

}  // namespace

const char* HealthName(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kProblem:
      return "problem";
  }
  return "";
}

size_t Examination::Count(Health health) const {
  return static_cast<size_t>(
      std::ranges::count(checks, health, &HealthCheck::health));
}

Examination Examine(const DoctorOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Machine machine = ExamineMachine();
  Examination found;
  found.checks = {Program(options),    Kernels(),
                  FloatingPoint(),     SelfTestCheck(options),
                  Libraries(options),  Mpi(),
                  Launchers(),         SlurmCheck(),
                  Processors(machine), Memory(machine),
                  DiskCheck(options),  Terminal()};
  found.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return found;
}

}  // namespace isoloss::doctor

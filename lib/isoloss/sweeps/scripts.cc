#include "isoloss/sweeps/scripts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/sweeps/slurm.h"

namespace isoloss::sweeps {
namespace {

/// Returns whether c is a letter, a digit or one of `others`, which mean
/// nothing else to a shell and to make.
bool IsPlain(char c, std::string_view others) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
}

/// Returns the script that makes the runs of one line of elements.txt.
Script ElementScript(const Sweep& sweep) {
  std::string text = Beginning(
      sweep, "Makes the runs of one line of elements.txt: element.sh LINE");
  text += fmt::format(
      R"sh(sweep={0}
runs=$(sed -n "${{1}}p" "$sweep/elements.txt" | cut -f 1)
{1} "$runs" >>"$sweep/log/element-$1.txt" 2>&1
code=$?
if [ $code -eq 0 ]; then
  echo "element $1 of {2} is done: $runs"
else
  echo "element $1 of {2} ended with code $code: $runs (see $sweep/log/element-$1.txt)" >&2
fi
exit $code
)sh",
      Quoted(sweep.folder().string()), Quoted(Command(sweep, sweep.make)),
      sweep.elements.size());
  return {.name = "element.sh", .text = std::move(text)};
}

Script JudgeScript(const Sweep& sweep) {
  std::string text = Beginning(sweep, "Judges what the elements have left.");
  text += fmt::format("exec {}\n", Quoted(Command(sweep, sweep.judge)));
  return {.name = "judge.sh", .text = std::move(text)};
}

int SideBySide(const Sweep& sweep) {
  if (sweep.request.side_by_side > 0) return sweep.request.side_by_side;
  return std::max(1, AvailableProcessors() / sweep.request.cpus);
}

Script LocalScript(const Sweep& sweep) {
  std::string text = Beginning(
      sweep, "Makes all runs on this machine, then judges what is there.");
  if (!sweep.elements.empty()) {
    text += fmt::format("seq {} | xargs -P {} -n 1 {}\n", sweep.elements.size(),
                        SideBySide(sweep),
                        Quoted(sweep.File("element.sh").string()));
  }
  if (!sweep.judge.empty()) {
    text += fmt::format("exec {}\n", Quoted(sweep.File("judge.sh").string()));
  }
  return {.name = "local.sh", .text = std::move(text)};
}

std::string Targets(const Element& element) {
  std::vector<std::string> files;
  for (const auto& file : element.files) files.push_back(file.string());
  return fmt::format("{}", fmt::join(files, " "));
}

/// Targets are the runs' own files, so that make itself knows what is missing.
Script Makefile(const Sweep& sweep) {
  RequirePlainPath(sweep.list.folder.string(), "a Makefile");
  std::string text =
      "# Makes all runs, then judges them: make -k -j 4 -f this "
      "file.\n.PHONY: all runs\n";
  std::string targets;
  std::string rules;
  for (size_t i = 0; i < sweep.elements.size(); ++i) {
    const std::string files = Targets(sweep.elements[i]);
    targets += " \\\n  " + files;
    rules += fmt::format("{} &:\n\t@sweep/element.sh {}\n", files, i + 1);
  }
  text +=
      fmt::format("all: runs\n{}runs:{}\n",
                  sweep.judge.empty() ? "" : "\t@sweep/judge.sh\n", targets);
  return {.name = "Makefile", .text = text + rules, .executable = false};
}

}  // namespace

void RequirePlainPath(const std::string& path, const char* place) {
  for (const char c : path) {
    if (IsPlain(c, "/._-+@,")) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: the folder's name has the character `{}`, which means "
               "something else in {}. Give another folder with --out, or "
               "--engine local.",
               path, c, place);
  }
}

std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return IsPlain(c, "/._-+@,=:%");
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::string Quoted(std::span<const std::string> words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(Quoted(word));
  return fmt::format("{}", fmt::join(quoted, " "));
}

std::string Beginning(const Sweep& sweep, const std::string& what,
                      const std::string& directives) {
  std::string text = fmt::format("#!/bin/bash\n{}# {}\n", directives, what);
  for (const std::string& line : sweep.request.setup) text += line + "\n";
  text += fmt::format(
      "cd {} || exit 3\n"
      "# A process takes no more threads than it was given processors.\n"
      "export ISOLOSS_PROCESSORS={}\n",
      Quoted(sweep.start.string()), sweep.request.cpus);
  return text;
}

std::vector<std::string> Command(const Sweep& sweep,
                                 const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {sweep.program.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::vector<Script> ScriptsOfOneMachine(const Sweep& sweep) {
  std::vector<Script> scripts = {ElementScript(sweep)};
  if (!sweep.judge.empty()) scripts.push_back(JudgeScript(sweep));
  scripts.push_back(sweep.request.engine == Engine::kMake ? Makefile(sweep)
                                                          : LocalScript(sweep));
  return scripts;
}

std::vector<Script> ScriptsOf(const Sweep& sweep) {
  return sweep.request.engine == Engine::kSlurm ? SlurmScripts(sweep)
                                                : ScriptsOfOneMachine(sweep);
}

std::string StartText(const Sweep& sweep) {
  switch (sweep.request.engine) {
    case Engine::kSlurm:
      return SbatchText(sweep);
    case Engine::kLocal:
      return Quoted(sweep.File("local.sh").string());
    case Engine::kMake:
      break;
  }
  return Quoted(StartCommand(sweep));
}

std::vector<std::string> StartCommand(const Sweep& sweep) {
  if (sweep.request.engine == Engine::kLocal) {
    return {"/bin/bash", sweep.File("local.sh").string()};
  }
  return {"make", "-k",
          "-j",   std::to_string(SideBySide(sweep)),
          "-C",   sweep.list.folder.string(),
          "-f",   "sweep/Makefile"};
}

}  // namespace isoloss::sweeps

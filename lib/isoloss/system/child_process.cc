#include "isoloss/system/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss::system {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Returns this process's environment with `changes`.
std::vector<std::string> EnvironmentWith(const EnvironmentChanges& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!changes.contains(name)) entries.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) entries.push_back(name + "=" + *value);
  }
  return entries;
}

using Clock = std::chrono::steady_clock;

/// Longer output of a child is cut.
constexpr size_t kMostKept = size_t{1} << 20;

/// Returns what a child writes until it closes `from`, `end` is reached or
/// `stop` is set.
std::string Listen(int from, Clock::time_point end,
                   const std::atomic<bool>& stop) {
  constexpr int kLookMilliseconds = 100;
  std::string errors;
  std::array<char, 4096> chunk;
  for (;;) {
    pollfd waiting = {.fd = from, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, kLookMilliseconds);
    if (ready > 0) {
      const ssize_t count = read(from, chunk.data(), chunk.size());
      if (count == 0 || (count < 0 && errno != EINTR)) return errors;
      if (count > 0 && errors.size() < kMostKept) {
        errors.append(chunk.data(), static_cast<size_t>(count));
      }
    } else if (ready < 0 && errno != EINTR) {
      return errors;
    }
    if (Clock::now() >= end || stop.load()) return errors;
  }
}

/// Waits for the end of the group's leader. At `end`, or when `stop` is set,
/// kills the group and returns false.
bool Wait(pid_t child, Clock::time_point end, const std::atomic<bool>& stop,
          int& status) {
  constexpr std::chrono::milliseconds kLook{5};
  bool ended = true;
  for (;;) {
    const pid_t found = waitpid(child, &status, WNOHANG);
    if (found == child || (found < 0 && errno != EINTR)) return ended;
    if (ended && (Clock::now() >= end || stop.load())) {
      ended = false;
      kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(kLook);
  }
}

/// Starts `command` as the leader of a process group, with `errors` as its
/// standard error.
pid_t Start(const std::vector<std::string>& command,
            const EnvironmentChanges& environment, int errors,
            const ChildPlace& place) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> entries = EnvironmentWith(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  const std::string output =
      place.output.empty() ? "/dev/null" : absolute(place.output).string();
  if (place.output_to_errors) {
    posix_spawn_file_actions_adddup2(&actions, errors, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  }
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  if (!place.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, place.folder.c_str());
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int error =
      posix_spawn(&child, arguments[0].c_str(), &actions, &attributes,
                  Pointers(arguments).data(), Pointers(entries).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    std::error_code ignored;
    const bool has_folder =
        place.folder.empty() ||
        std::filesystem::is_directory(place.folder, ignored);
    errno = error;
    if (!has_folder) ThrowErrno(place.folder, "start a program in it");
    ThrowErrno(command[0], "start");
  }
  return child;
}

}  // namespace

std::filesystem::path ThisProgram() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::filesystem::path FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::filesystem::path file = std::filesystem::path(folder) / name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

ChildResult RunChild(const std::vector<std::string>& command,
                     const EnvironmentChanges& environment,
                     std::chrono::seconds limit, const std::atomic<bool>& stop,
                     const ChildPlace& place) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno(command[0], "start");
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = Start(command, environment, to.get(), place);
  to = Descriptor();
  const Clock::time_point end = Clock::now() + limit;
  ChildResult result;
  result.errors = Listen(from.get(), end, stop);
  int status = 0;
  result.ended = Wait(child, end, stop, status);
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string OutputOf(const std::vector<std::string>& command) {
  constexpr std::chrono::seconds kLimit{5};
  const std::atomic<bool> never{false};
  try {
    ChildResult result =
        RunChild(command, {}, kLimit, never, {.output_to_errors = true});
    if (!result.ended || result.exit_code != 0) return "";
    return std::move(result.errors);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace isoloss::system

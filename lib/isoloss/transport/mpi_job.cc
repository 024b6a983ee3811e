#include "isoloss/transport/mpi_job.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/transport/launch.h"

namespace isoloss::transport {
namespace {

/// MPI may take this long to end a job. Then this process ends without MPI, and
/// the launcher learns of it by the exit code. On a loaded machine MPI_Abort
/// took 0.4 s while the launcher ran; with a launcher that was stopped or out
/// of reach it never returned.
constexpr unsigned kAbortSeconds = 2;
/// During this time other processes that wait for the same one write their
/// reasons.
constexpr std::chrono::milliseconds kOthersReasons{300};

struct Job {
  const IsolossMpiModule* mpi = nullptr;
  std::unique_ptr<MpiLink> link;
  uint64_t runs = 0;
  std::string reason_folder;
  double deadline_seconds = 0;
  std::unique_ptr<CallWatch> watch;
  std::atomic<bool> ends = false;  // set once the job has its reason
};

/// The job is never destroyed, since the handler at exit uses it.
Job& TheJob() {
  static Job& job = *new Job;
  return job;
}

struct Library {
  const char* module;    // isoloss_mpi_<module>.so; value of ISOLOSS_MPI
  const char* launcher;  // as DetectLaunch names it
  const char* package;   // Debian's
};
constexpr Library kLibraries[] = {
    {"openmpi", "Open MPI", "libopenmpi-dev"},
    {"mpich", "MPICH", "libmpich-dev"},
};

const Library& ChooseLibrary(const Launch& launch) {
  const char* wanted = std::getenv("ISOLOSS_MPI");
  for (const Library& library : kLibraries) {
    if (wanted ? wanted == std::string(library.module)
               : launch.launcher == library.launcher) {
      return library;
    }
  }
  ThrowError(ErrorKind::kConfig,
             "transport `mpi`: ISOLOSS_MPI is `{}`, but it must be openmpi or "
             "mpich. Unset it to use the launcher's library.",
             wanted ? wanted : "");
}

/// Returns the folder of modules, which lie beside the program, installed or
/// built.
std::filesystem::path ModuleFolder() {
  if (const char* folder = std::getenv("ISOLOSS_MPI_MODULE_DIR")) return folder;
  constexpr const char* kLink = "/proc/self/exe";
  std::error_code error;
  const auto program = std::filesystem::read_symlink(kLink, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: can't be read: {}, but it says where the modules for MPI "
               "are. Mount /proc, or say with ISOLOSS_MPI_MODULE_DIR.",
               kLink, error.message());
  }
  return program.parent_path().parent_path() / "lib" / "isoloss";
}

std::string FileOf(const Library& library) {
  return fmt::format("isoloss_mpi_{}.so", library.module);
}

/// `scope` is RTLD_GLOBAL or RTLD_LOCAL.
const IsolossMpiModule& LoadModule(const Library& library, int scope) {
  const std::filesystem::path path = ModuleFolder() / FileOf(library);
  if (!std::filesystem::exists(path)) {
    ThrowError(
        ErrorKind::kConfig,
        "transport `mpi`: this build has no module for {}: {} is not "
        "there. Install {} (Debian), then configure and build again (what "
        "pip installs never has one), or say with "
        "ISOLOSS_MPI_MODULE_DIR where it is.",
        library.launcher, path.string(), library.package);
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | scope);
  if (module == nullptr) {
    ThrowError(ErrorKind::kTransport,
               "transport `mpi`: {} does not load: {}. Install the MPI "
               "library that it was built with (Debian: {}).",
               path.string(), dlerror(), library.package);
  }
  const auto* table = static_cast<const IsolossMpiModule*>(
      dlsym(module, ISOLOSS_MPI_MODULE_SYMBOL));
  if (table == nullptr ||
      table->interface_version != ISOLOSS_MPI_INTERFACE_VERSION) {
    ThrowError(ErrorKind::kTransport,
               "transport `mpi`: {} is of another version of isoloss. Build "
               "program and modules together.",
               path.string());
  }
  return *table;
}

/// Makes this process end with `code` after `kAbortSeconds` at the latest.
void LimitTheRest(int code) {
  static volatile std::sig_atomic_t last_code = kStartAgain;
  last_code = code;
  std::signal(SIGALRM, [](int) { _exit(static_cast<int>(last_code)); });
  alarm(kAbortSeconds);
}

std::filesystem::path ReasonFile(int process) {
  return std::filesystem::path(TheJob().reason_folder) /
         fmt::format("abort-process{}.txt", process);
}

void WriteReason(const std::string& reason) {
  if (TheJob().reason_folder.empty()) return;
  const std::string text = reason + "\n";
  // The folder is gone if the job made it and ended before it left a file
  // there.
  std::error_code ignored;
  std::filesystem::create_directories(TheJob().reason_folder, ignored);
  try {
    WriteFileAtomically(ReasonFile(DetectLaunch().process), text);
  } catch (const Error& error) {
    std::fputs((PrintableMessage(error.what()) + "\n").c_str(), stderr);
  }
}

void Say(const std::string& reason) {
  const Launch launch = DetectLaunch();
  std::fputs(fmt::format("isoloss, process {} of {}: {}\n", launch.process,
                         launch.processes, reason)
                 .c_str(),
             stderr);
}

/// Only the watching thread calls this function. It may not talk to MPI, since
/// another thread does.
void EndStuck(const std::string& problem) {
  if (TheJob().ends.exchange(true)) return;
  LimitTheRest(kStartAgain);
  const std::string text =
      fmt::format("process {}: {}", DetectLaunch().process, problem);
  WriteReason(text);
  Say(text);
  std::_Exit(kStartAgain);
}

/// Returns the reason that another process of this job has left in the reason
/// folder.
std::string ReasonOfAnother() {
  if (TheJob().reason_folder.empty()) return "";
  const Launch launch = DetectLaunch();
  for (int process = 0; process < launch.processes; ++process) {
    if (process == launch.process) continue;
    std::ifstream file(ReasonFile(process));
    std::string line;
    // The length has a limit, since another program may have written the file.
    constexpr std::streamsize kMost = 4096;
    line.resize(static_cast<size_t>(kMost));
    file.read(line.data(), kMost);
    line.resize(static_cast<size_t>(file.gcount()));
    if (!line.empty()) {
      return fmt::format("process {} says {}", process,
                         line.substr(0, line.find('\n')));
    }
  }
  return "";
}

/// Asks at most once a second, since the answer takes reading one file for each
/// process.
std::string ReasonOfAnotherEachSecond() {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point last;  // only the watching thread uses it
  if (Clock::now() - last < std::chrono::seconds(1)) return "";
  last = Clock::now();
  return ReasonOfAnother();
}

/// MPI_Init and MPI_Finalize wait for all processes, which may have work of
/// their own: starting a job may well take a minute.
double LongestMeeting() { return std::max(TheJob().deadline_seconds, 60.0); }

void FinalizeAtExit() {
  Job& job = TheJob();
  // The results are whole. But whatever damaged this frame may damage more.
  if (!job.link->broken.empty()) {
    Say(job.link->broken);
    EndJob(job.link->broken);
  }
  {
    const CallWatch::Scope scope(*job.watch, "MPI_Finalize", LongestMeeting());
    job.mpi->finalize();
  }
  job.watch.reset();
}

void CheckStart(const IsolossMpiModule& mpi, int code) {
  if (code == 0) return;
  char text[256];
  mpi.error_text(code, text, sizeof(text));
  ThrowError(ErrorKind::kTransport, "transport `mpi`: MPI does not start: {}",
             text);
}

}  // namespace

MpiLink& JoinMpiJob(const TransportOptions& options) {
  Job& job = TheJob();
  // Jobs that share a results folder each need their own folder of reasons.
  const char* const own_folder = std::getenv("ISOLOSS_REASON_FOLDER");
  job.reason_folder =
      own_folder == nullptr ? options.reason_folder : own_folder;
  job.deadline_seconds = options.deadline_seconds;
  if (job.link != nullptr) {
    job.watch->set_deadline(job.deadline_seconds);
    return *job.link;
  }
  const Launch launch = DetectLaunch();
  const Library& library = ChooseLibrary(launch);
  // The scope is global, since MPI libraries load plug-ins that look for the
  // library's symbols.
  const IsolossMpiModule& mpi = LoadModule(library, RTLD_GLOBAL);
  int index = 0;
  int size = 0;
  job.watch = std::make_unique<CallWatch>(
      CallWatch::Rules{.trouble = LauncherTrouble,
                       .forsaken = ReasonOfAnotherEachSecond,
                       .stuck = EndStuck});
  job.watch->set_deadline(job.deadline_seconds);
  {
    const CallWatch::Scope scope(*job.watch, "MPI_Init", LongestMeeting());
    CheckStart(mpi, mpi.init(&index, &size));
  }
  job.mpi = &mpi;
  job.link = std::make_unique<MpiLink>(mpi, *job.watch, index, size);
  std::atexit(FinalizeAtExit);
  if (size != launch.processes || index != launch.process) {
    char version[256];
    mpi.library_version(version, sizeof(version));
    ThrowError(ErrorKind::kTransport,
               "transport `mpi`: {} started process {} of {}, but the library "
               "({}) sees process {} of {}. Set ISOLOSS_MPI to the launcher's "
               "library, or unset it.",
               launch.launcher, launch.process, launch.processes, version,
               index, size);
  }
  return *job.link;
}

uint64_t NextMpiRun() { return ++TheJob().runs; }

std::vector<std::string> MpiModules() {
  std::vector<std::string> modules;
  for (const Library& library : kLibraries) {
    if (std::filesystem::exists(ModuleFolder() / FileOf(library))) {
      modules.emplace_back(library.module);
    }
  }
  return modules;
}

std::vector<MpiModuleState> ExamineMpiModules() {
  std::vector<MpiModuleState> states;
  for (const Library& library : kLibraries) {
    if (!std::filesystem::exists(ModuleFolder() / FileOf(library))) continue;
    MpiModuleState state{.launcher = library.launcher};
    try {
      char version[256] = {};
      // The scope is local, since two libraries have symbols of the same names.
      LoadModule(library, RTLD_LOCAL).library_version(version, sizeof(version));
      state.version = version;
    } catch (const Error& error) {
      state.error = error.what();
    }
    states.push_back(std::move(state));
  }
  return states;
}

bool JobHasPeers() {
  const Job& job = TheJob();
  return job.link != nullptr && job.link->size() > 1;
}

void EndJob(const std::string& reason, int code) {
  LimitTheRest(code);
  TheJob().ends = true;
  const std::string trouble = JobHasPeers() ? LauncherTrouble() : "";
  WriteReason(trouble.empty() ? reason : reason + " " + trouble);
  if (JobHasPeers()) {
    std::this_thread::sleep_for(kOthersReasons);
    TheJob().mpi->abort(code);
  }
  std::_Exit(code);
}

/// These calls are not meant to wait, so any wait is too long, whatever the
/// deadline is.
constexpr double kLongestCall = 0;

void MpiLink::CheckCode(int code, const char* call) const {
  if (code == 0) return;
  char text[256];
  mpi_.error_text(code, text, sizeof(text));
  ThrowError(ErrorKind::kTransport, "process {}: {} fails: {}", index_, call,
             text);
}

bool MpiLink::IsOver(IsolossMpiHandle& request) {
  int done = 0;
  CheckCode(mpi_.test(&request, &done), "MPI_Test");
  return done != 0;
}

void MpiLink::Post(int peer, bool more, std::span<const std::byte> bytes,
                   int* outstanding) {
  const CallWatch::Scope scope(watch_, "MPI_Isend", kLongestCall);
  Send send{{}, outstanding};
  CheckCode(mpi_.isend(bytes.data(), static_cast<int>(bytes.size()), peer,
                       more ? 1 : 0, &send.request),
            "MPI_Isend");
  ++*outstanding;
  sends_.push_back(send);
}

void MpiLink::BeginReceive() {
  int found = 0;
  int peer = 0;
  int tag = 0;
  int count = 0;
  IsolossMpiHandle message{};
  CheckCode(mpi_.improbe(&found, &peer, &tag, &count, &message), "MPI_Improbe");
  if (found == 0) return;
  Receive& receive = receives_.emplace_back();
  receive.parcel.peer = peer;
  receive.parcel.more = tag != 0;
  receive.parcel.bytes = static_cast<size_t>(count);
  if (!spare_.empty()) {
    receive.parcel.data = std::move(spare_.back());
    spare_.pop_back();
  }
  receive.parcel.data.ResizeUninitialized(1, receive.parcel.bytes);
  CheckCode(mpi_.imrecv(receive.parcel.data.data(), count, &message,
                        &receive.request),
            "MPI_Imrecv");
}

bool MpiLink::Poll(Parcel& parcel) {
  const CallWatch::Scope scope(watch_, "MPI_Test or MPI_Improbe", kLongestCall);
  std::erase_if(sends_, [&](Send& send) {
    if (!IsOver(send.request)) return false;
    --*send.outstanding;
    return true;
  });
  BeginReceive();
  // A large message takes longer, and later messages of the same peer wait for
  // it.
  std::vector<bool> late(static_cast<size_t>(size_));
  for (auto receive = receives_.begin(); receive != receives_.end();
       ++receive) {
    const auto peer = static_cast<size_t>(receive->parcel.peer);
    if (!receive->done) receive->done = IsOver(receive->request);
    if (receive->done && !late[peer]) {
      if (spare_.size() < 2 * late.size()) {
        spare_.push_back(std::move(parcel.data));
      }
      parcel = std::move(receive->parcel);
      receives_.erase(receive);
      return true;
    }
    late[peer] = true;
  }
  return false;
}

}  // namespace isoloss::transport

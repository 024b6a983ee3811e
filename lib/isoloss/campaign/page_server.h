// A page and its data over HTTP, for browsers of this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace isoloss::campaign {

/// What a request is answered with; made when it is asked for.
using PagePart = std::function<std::shared_ptr<const std::string>()>;

/// What is at the address: the page itself, and `data.json` beside it, which
/// the page asks for again and again.
struct ServedPage {
  PagePart page;
  PagePart data;
};

/// Listens on 127.0.0.1 alone. A name of 128 random bits is part of its
/// address, so that other users of the machine, who reach the port, too, do not
/// find the page.
/// Answers  GET and HEAD of the page and its data; everything else is refused.
///          So is a request whose Host is not this address: another site's name
///          may be made to point here (DNS rebinding).
/// Bounds   16 connections, each for one request of at most 8 KiB within 5
///          seconds and one answer within 60. When all places are taken, the
///          oldest connection that has sent no request is closed.
/// Threads  none of its own; it answers while Serve runs.
class PageServer {
 public:
  /// `port` 0: one that is free.
  /// Errors   IoError if nothing can listen there.
  PageServer(uint16_t port, ServedPage content);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// "http://127.0.0.1:PORT/NAME/"
  std::string address() const;

  /// Answers for so long. False if a signal (InterruptFlag) ended it before.
  /// Errors   those of `content`.
  bool Serve(double seconds);

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace isoloss::campaign

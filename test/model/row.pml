/* The row protocol of core: one term on one node.
 *
 * What is modelled: lock_table (try_acquire, acquire, release, downgrade,
 * abandon, assign, grant), session_ledger (enter, enter_wait, leave,
 * leave_wait, settle, close), waiter (judge) and the sequences that
 * local_locks makes of them. A section under a bucket's bit or a session's bit
 * is one d_step; a session's bit and the bucket's bit are never held together,
 * so two sections are two steps and anything may come between them. A "look"
 * is a message: it arrives some time, maybe at a manager that has no queue any
 * more, or another one.
 *
 * Who runs: CLIENTS sessions, each of at most ASKS asks (shared or exclusive,
 * several at once, re-entrant, upgrade), releases and downgrades in any order;
 * REAPERS that end any request (deadline, cancel) and close any session
 * (death), together ACTS times each, at any moment, also between any two steps
 * of a client; MANAGERS that are reused.
 *
 * What is asserted: I1 to I6 of lock_table.hpp (check_invariants, at the end of
 * each section of the row), W1 and W2 of waiter.hpp, grants in the order of
 * tickets, no use of what is freed, verdicts that name a true cycle, exclusive
 * stays exclusive; in the end nothing is left and nobody is stuck (spin reports
 * a request that is never settled as an invalid end state).
 *
 * Not modelled: several terms in one bucket, growth, tokens, hand-overs,
 * reference counts of waiters and ledgers, several threads in one session.
 *
 * Names as in the code. A record and a waiter are an index, ask `e`, of
 * session e / ASKS.
 *
 * Faults, each with -D; spin finds every one of them:
 *   TICKET_IN_MESSAGE     the ticket is drawn in one step, the request hangs
 *                         in another: later tickets are granted earlier
 *   ABANDON_OVERTAKES     the hanging step does not read the waiter's word: a
 *                         request hangs whose client was told that it ended
 *   CLOSED_NOT_READ       settle does not read `closed`: a hold is left after
 *                         a death
 *   NO_LOOK_AFTER_DOWNGRADE
 *   NO_LOOK_FOR_UPGRADER  release looks when the last holder goes, not when
 *                         only records of the first waiter's session are left
 *   LOOKS_FOR_UPGRADES_ONLY
 *                         the same, but not for a waiter that hung before its
 *                         session held anything
 *   NO_LOOK_AFTER_GIVE_BACK
 *                         an upgrade that falls back to shared tells nobody
 *   LOOKS_AT_ORPHAN       a manager has its queue before the queue is assigned
 *                         to it: a look that was sent for its last queue makes
 *                         it detach and free this one under the assigning
 *                         thread
 *   FORGETS_EXCLUSIVE     an exclusive record is released while others of the
 *                         session stay, which are shared; a grant that is given
 *                         back later lets these decide the mode of the row
 *   MEETS_THE_DEAD        an upgrade is told `deadlock` because of an upgrade
 *                         that has ended but still hangs
 *   MEETS_NO_HOLDER       the same, because of an upgrade whose session has
 *                         released its hold meanwhile
 *   NO_LOOK_AFTER_THE_LAST
 *                         a release passes the row on to the last of a queue,
 *                         and its manager does not hear that it is empty
 *   PASSES_THE_QUEUE      try_acquire does not ask whether somebody waits
 *   PASSES_AND_FORGETS    whom a release passes the row on to is not settled
 *   LEFT_IN_LEDGER        a waiter that ended before it was listed stays listed
 */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ASKS
#define ASKS 2
#endif
/* How many fewer asks the last client has. */
#ifndef FEWER
#define FEWER 0
#endif
#ifndef MANAGERS
#define MANAGERS 2
#endif
/* Grants per look; two, so that a manager must look again for the third. */
#ifndef LIMIT
#define LIMIT 2
#endif

/* Who ends requests and sessions, and how often. */
#ifndef REAPERS
#define REAPERS 1
#endif
#ifndef ACTS
#define ACTS 2
#endif

#define ALL (CLIENTS * ASKS)
#define NOBODY ALL
#define session(e) ((e) / ASKS)

/* Modes; also the state of a record in its row: none is not linked. */
#define none 0
#define shared 1
#define exclusive 2

/* States of a waiter's word, and before it was asked or after it was told. */
#define nothing 0
#define pending 1
#define granted 2
#define ended 3

/* -- the row, under the bucket's bit ---------------------------------------- */

byte row_mode;
bit kept;          /* an exclusive record was released, others stayed */
byte record[ALL];  /* the mode in which it is linked */

/* -- its queue, under the bucket's bit -------------------------------------- */

bit attached;
byte manager;      /* 0: orphan */
bit look_pending;
bit more;          /* its manager will look again by itself */
byte queue[ALL + 1];
byte size;
bit upgrade[ALL];

/* -- the ledgers, under the session's bit ----------------------------------- */

bit closed[CLIENTS];
bit entered[ALL];  /* records */
bit listed[ALL];   /* waiters */

/* -- waiters, records ------------------------------------------------------- */

byte word[ALL];
byte mode[ALL];    /* asked for */
byte parties[ALL]; /* of the record; 0: freed */
bit have[ALL];     /* the client has been told and has the handle */
byte handles[CLIENTS];

/* -- managers --------------------------------------------------------------- */

bit looks[MANAGERS + 1];    /* a message is under way */
bit has_queue[MANAGERS + 1];
bit idle[MANAGERS + 1];

/* -- ghosts ----------------------------------------------------------------- */

byte tickets[ALL + 1];      /* who waits, no upgrade, in the order of tickets */
byte drawn;
bit assigning;     /* a thread has an orphan in its hands */
bit starting;      /* or has assigned it, and its manager has yet to look */
bit told_exclusive[CLIENTS]; /* and neither downgraded nor let go since */
byte finished;

/* -- questions, for use in a section ---------------------------------------- */

/* Sets `any` (somebody holds), `own` (c does), `others` (another does). */
inline look_at_holders(c) {
  any = 0; own = 0; others = 0; k = 0;
  do
  :: k < ALL ->
     if
     :: record[k] != none ->
        any = 1;
        if
        :: session(k) == c -> own = 1
        :: else -> others = 1
        fi
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0
}

/* lock_table::access_of is not `conflict`; sets `yes`, and any, own, others. */
inline grantable(e) {
  look_at_holders(session(e));
  yes = (!others || (mode[e] == shared && row_mode == shared))
}

inline take_from_queue(e) {
  at = 0;
  do
  :: at < size && queue[at] != e -> at++
  :: else -> break
  od;
  if
  :: at < size ->
     upgrade[e] = 0;
     do
     :: at + 1 < size -> queue[at] = queue[at + 1]; at++
     :: else -> break
     od;
     size--;
     queue[size] = 0
  :: else
  fi;
  at = 0;
  do
  :: at < drawn && tickets[at] != e -> at++
  :: else -> break
  od;
  if
  :: at < drawn ->
     do
     :: at + 1 < drawn -> tickets[at] = tickets[at + 1]; at++
     :: else -> break
     od;
     drawn--;
     tickets[drawn] = 0
  :: else
  fi;
  at = 0
}

/* check_invariants, at the end of each section under the bucket's bit. */
inline check_invariants() {
  i = 0; at = NOBODY;
  do
  :: i < ALL ->
     if
     :: record[i] != none ->
        assert(parties[i] > 0);
        assert(record[i] <= row_mode);
        best = (record[i] > best -> record[i] : best);
        /* I1 */
        assert(row_mode != exclusive || at == NOBODY || at == session(i));
        at = session(i)
     :: else
     fi;
     i++
  :: else -> break
  od;
  /* I5, and the mode of a free row. */
  assert((at != NOBODY) == (row_mode != none));
  /* I9 */
  assert(row_mode == (kept -> exclusive : best));
  best = 0;
  /* What a session was told to have exclusively, it has. */
  i = 0;
  do
  :: i < CLIENTS ->
     assert(!told_exclusive[i] || closed[i] ||
            (row_mode == exclusive && at == i));
     i++
  :: else -> break
  od;
  i = 0; at = 0;
  if
  :: attached ->
     /* I2 */
     assert((manager == 0) == assigning);
     assert(manager == 0 || starting || has_queue[manager]);
     assert(manager == 0 || !idle[manager]);
     /* I4; an empty queue has to be detached. */
     yes = 1;
     if
     :: size > 0 -> grantable(queue[0])
     :: else
     fi;
     assert(!yes || assigning || starting || look_pending || more ||
            looks[manager])
  :: else ->
     assert(size == 0 && !look_pending && !more && !assigning)
  fi;
  any = 0; own = 0; others = 0; yes = 0
}

/* waiter::settled, by the winner, once, when it hangs nowhere. At the end of
 * the section before it: the client may act on it as late as it likes. */
inline tell_client(e) {
  assert(word[e] == granted || word[e] == ended);
  k = 0;
  do
  :: k < size -> assert(queue[k] != e); k++
  :: else -> break
  od;
  k = 0;
  if
  :: word[e] == granted ->
     have[e] = 1;
     handles[session(e)]++;
     if
     :: record[e] == exclusive -> told_exclusive[session(e)] = 1
     :: else
     fi
  :: else
  fi;
  word[e] = nothing;
  mode[e] = none
}

/* -- steps under the bucket's bit ------------------------------------------- */

/* wait_queue::want_look, and the look that is sent after the section: that it
 * is under way and that it is not yet sent are the same thing. So are one look
 * under way and two. */
inline want_look() {
  if
  :: attached && manager != 0 && !look_pending ->
     look_pending = 1; looks[manager] = 1
  :: else
  fi
}

/* lock_table::enter */
inline link(e) {
  record[e] = mode[e];
  parties[e] = 1;
  if
  :: mode[e] > row_mode -> row_mode = mode[e]
  :: else
  fi;
  mode[e] = none;
  upgrade[e] = 0
}

/* lock_table::try_acquire. Where somebody waits only what the session covers. */
inline try_acquire(e) {
  d_step {
    grantable(e);
#ifdef PASSES_THE_QUEUE
    got = yes;
#else
    got = (yes && (size == 0 || row_mode == exclusive));
#endif
    /* Nobody gets in before those that wait, but whose session is in already. */
    assert(!got || own || drawn == 0);
    if
    :: got -> link(e)
    :: else -> word[e] = pending
    fi;
    check_invariants()
  }
}

/* lock_table::outrank: of upgraders of different sessions the younger lose; the
 * smaller index is the older. Sets `lost` for each. */
inline outrank(e) {
  at = 0;
  do
  :: at < size && upgrade[queue[at]] ->
     look_at_holders(session(queue[at]));
     yes = (session(queue[at]) != session(e) &&
#ifndef MEETS_THE_DEAD
            word[queue[at]] == pending &&
#endif
            true);
     if
     :: yes ->
        /* Every verdict names a true cycle: the other waits, and it holds. */
        assert(word[queue[at]] == pending && own);
        if
        :: queue[at] < e -> lost[e] = 1
        :: else -> lost[queue[at]] = 1
        fi
     :: else
     fi;
     at++
  :: else -> break
  od;
  at = 0;
  if
  :: lost[e] ->
     do
     :: at < ALL -> lost[at] = (at == e); at++
     :: else -> break
     od
  :: else ->
     first = 0;
     do
     :: first < ALL ->
        if
        :: lost[first] -> take_from_queue(first)
        :: else
        fi;
        first++
     :: else -> break
     od;
     first = 0
  fi;
  at = 0
}

/* wait_queue::hang. The first waiter attaches the queue. */
inline hang(e) {
  if
  :: !attached -> attached = 1; assigning = 1; orphan = 1
  :: else
  fi;
  /* What hangs may still be granted: nobody was told otherwise. */
  assert(word[e] != nothing);
  if
  :: upgrade[e] ->
     at = 0;
     do
     :: at < size && upgrade[queue[at]] -> at++
     :: else -> break
     od
  :: else -> at = size
  fi;
  k = size;
  do
  :: k > at -> queue[k] = queue[k - 1]; k--
  :: else -> break
  od;
  queue[at] = e;
  size++;
  k = 0; at = 0
}

/* lock_table::acquire, which enters what it can (enter_held) or hangs it. Sets
 * got (record linked), orphan, lost, hangs. */
inline acquire(e) {
  d_step {
    if
#ifndef ABANDON_OVERTAKES
    :: word[e] != pending -> skip
#endif
    :: else ->
       grantable(e);
       if
       :: own && mode[e] == shared -> got = 1
       :: yes && (size == 0 || own) && (!own || mode[e] != shared) -> got = 1
       :: else ->
          upgrade[e] = own;
          if
          :: own -> outrank(e)
          :: else
          fi;
          if
          :: !lost[e] ->
             hangs = 1;
             if
             :: !upgrade[e] -> tickets[drawn] = e; drawn++
             :: else
             fi;
#ifndef TICKET_IN_MESSAGE
             hang(e)
#endif
          :: else
          fi
       fi
    fi;
    if
    :: got ->
       link(e);
       /* Exclusive from now on: this may cover what the session waits for. */
       if
       :: attached && row_mode == exclusive -> want_look()
       :: else
       fi
    :: else
    fi;
    check_invariants()
  }
#ifdef TICKET_IN_MESSAGE
  d_step {
    if
    :: hangs && word[e] == pending -> hang(e); want_look(); check_invariants()
    :: else
    fi
  }
#endif
}

/* lock_table::mode_again: the records that are left decide the mode, unless an
 * exclusive one was kept. */
inline mode_again(to_prior) {
#ifdef FORGETS_EXCLUSIVE
  kept = (kept && !to_prior);
#endif
  best = 0; k = 0;
  do
  :: k < ALL -> best = (record[k] > best -> record[k] : best); k++
  :: else -> break
  od;
  k = 0;
  kept = (kept && best != none);
  row_mode = (kept -> exclusive : best);
  best = 0
}

/* wait_queue::demote_all: upgrades of a session that holds nothing any more go
 * behind those that still are upgrades. */
inline demote_all(c) {
  look_at_holders(c);
  k = 0; first = 0;
  do
  :: !own && first < ALL ->
     if
     :: upgrade[first] && session(first) == c ->
        upgrade[first] = 0;
        at = 0;
        do
        :: at < size && queue[at] != first -> at++
        :: else -> break
        od;
        do
        :: at + 1 < size && upgrade[queue[at + 1]] ->
           queue[at] = queue[at + 1]; queue[at + 1] = first; at++
        :: else -> break
        od
     :: else
     fi;
     first++
  :: else -> break
  od;
  first = 0; at = 0
}

/* lock_table::pass_on: the row is free, and the head wants it exclusively. Sets
 * `next`, who is to be settled after the section, unless a session waits there
 * twice: then its manager has to come. */
inline pass_on() {
  i = 0;
  do
  :: i < CLIENTS && yes ->
     k = 0; at = 0;
     do
     :: k < size ->
        at = (session(queue[k]) == i -> at + 1 : at);
        k++
     :: else -> break
     od;
     yes = (at < 2);
     i++
  :: else -> break
  od;
  i = 0; at = 0; k = 0;
  if
  :: yes ->
     next = queue[0];
     /* The order of grants is the order of tickets. */
     do
     :: at < drawn && tickets[at] != next -> at++
     :: else -> break
     od;
     assert(at == 0 || at == drawn);
     take_from_queue(next);
     link(next);
     if
#ifndef NO_LOOK_AFTER_THE_LAST
     :: size == 0 -> want_look()
#endif
     :: else
     fi
  :: else -> want_look()
  fi
}

/* lock_table::release; `to_prior` for a grant that nobody has seen, whose
 * record is freed, and whose client is told if `tell`. Sets `done` if this was
 * the end of the hold. */
inline take_out(e, to_prior, tell) {
  d_step {
    assert(parties[e] > 0);
    done = (record[e] != none);
    if
    :: done ->
       look_at_holders(session(e));
       if
       :: !to_prior && record[e] == exclusive -> kept = 1
       :: else
       fi;
       record[e] = none;
       mode_again(to_prior);
#ifndef MEETS_NO_HOLDER
       demote_all(session(e));
#endif
       if
       :: attached && size > 0 ->
          grantable(queue[0]);
          if
#ifdef NO_LOOK_FOR_UPGRADER
          :: yes && any && own -> skip
#endif
#ifdef LOOKS_FOR_UPGRADES_ONLY
          :: yes && any && own && !upgrade[queue[0]] -> skip
#endif
#ifdef NO_LOOK_AFTER_GIVE_BACK
          :: yes && to_prior && mode[queue[0]] == shared -> skip
#endif
          :: else ->
             if
             :: yes && !any && mode[queue[0]] == exclusive ->
                pass_on()
             :: yes && (any || mode[queue[0]] != exclusive) -> want_look()
             :: else
             fi
          fi
       :: else
       fi
    :: else
    fi;
    if
    :: to_prior -> parties[e] = 0
    :: else
    fi;
    if
    :: tell -> tell_client(e)
    :: else
    fi;
    check_invariants()
  }
}

/* lock_table::downgrade */
inline make_shared(c) {
  d_step {
    told_exclusive[c] = 0;
    look_at_holders(c);
    if
    :: own && row_mode == exclusive ->
       row_mode = shared;
       kept = 0;
       k = 0;
       do
       :: k < ALL ->
          record[k] = (record[k] == exclusive -> shared : record[k]);
          k++
       :: else -> break
       od;
       k = 0;
#ifndef NO_LOOK_AFTER_DOWNGRADE
       if
       :: attached && size > 0 ->
          grantable(queue[0]);
          if
          :: yes -> want_look()
          :: else
          fi
       :: else
       fi
#endif
    :: else
    fi;
    check_invariants()
  }
}

/* lock_table::abandon, and tells the client. Those behind e were kept waiting by e alone only if it
 * was the first. */
inline abandon(e) {
  d_step {
    yes = (size > 0 && queue[0] == e);
    take_from_queue(e);
    if
    :: yes -> want_look()
    :: else
    fi;
    tell_client(e);
    won = 0;
    check_invariants()
  }
}

/* lock_table::assign */
inline assign(m) {
  d_step {
    assert(attached && manager == 0 && assigning);
    manager = m;
    assigning = 0;
    orphan = 0;
    starting = 1;
    check_invariants()
  }
}

/* lock_table::grant_covered */
inline grant_covered(c) {
  i = 0;
  do
  :: i < size ->
     if
     :: session(queue[i]) == c && mode[queue[i]] <= row_mode ->
        first = queue[i];
        take_from_queue(first);
        link(first);
        mine[first] = 1
     :: else -> i++
     fi
  :: else -> break
  od;
  i = 0
}

/* lock_table::grant_front */
inline grant_front(e) {
  take_from_queue(e);
  link(e);
  mine[e] = 1;
  grant_covered(session(e))
}

/* lock_table::grant, by manager m. Sets `gone` when it detached the queue. */
inline grant(m) {
  d_step {
    if
    :: attached ->
#ifndef LOOKS_AT_ORPHAN
       assert(manager == m);
#endif
       look_pending = 0;
       more = 0;
       count = 0;
       if
       :: row_mode == exclusive ->
          /* A session that upgraded ahead of the queue may wait in it, too. */
          do
          :: record[e] == none -> e++
          :: else -> break
          od;
          grant_covered(session(e))
       :: else
       fi;
       e = 0;
       do
       :: size > 0 ->
          grantable(queue[0]);
          if
          :: yes && count < LIMIT ->
             e = queue[0];
             /* The order of grants is the order of tickets. */
             at = 0;
             do
             :: at < drawn && tickets[at] != e -> at++
             :: else -> break
             od;
             assert(at == 0 || at == drawn);
             grant_front(e);
             count++
          :: yes && count >= LIMIT -> more = 1; break
          :: else -> break
          fi
       :: else -> break
       od;
       if
       :: size == 0 ->
          /* From here on it is freed: nobody may have a pointer to it. */
          assert(!assigning && !starting);
          attached = 0; manager = 0; has_queue[m] = 0; gone = 1
       :: else
       fi
    :: else
    fi;
    again = more;
    first = 0; count = 0; at = 0; e = 0;
    check_invariants()
  }
}

/* -- steps under the session's bit ------------------------------------------ */

/* session_ledger::settle, the grantor's step. Sets won and, when the hold is
 * the client's now, got. */
inline settle(e) {
  d_step {
    won = (word[e] == pending);
    got = 0;
    if
#ifndef CLOSED_NOT_READ
    :: won && closed[session(e)] -> word[e] = ended
    :: won && !closed[session(e)] ->
#else
    :: won ->
#endif
       /* L1 of session_ledger.hpp: nobody would take it out again. */
       assert(!closed[session(e)]);
       word[e] = granted; listed[e] = 0; entered[e] = 1; got = 1;
       tell_client(e)
    :: else
    fi
  }
}

/* -- sequences -------------------------------------------------------------- */

/* local_locks::after: settles whom the row was passed on to. Who has ended gives
 * it back, and it is passed on again. */
inline after() {
  do
  :: next != NOBODY ->
     d_step { passed = next; next = NOBODY }
#ifndef PASSES_AND_FORGETS
     settle(passed);
     if
     :: !got -> take_out(passed, 1, won)
     :: else
     fi;
#endif
     d_step { won = 0; got = 0; done = 0; passed = NOBODY }
  :: else -> break
  od;
  skip /* a loop may not be left into a d_step */
}

/* The grantor's part after the row: local_locks::settle_granted. */
inline settle_granted(e) {
  settle(e);
  if
  :: !got -> take_out(e, 1, won)
  :: else
  fi;
  d_step { won = 0; got = 0; done = 0 }
  after()
}

/* waiter::judge and session_ledger::leave_wait. Two steps, but what comes
 * between them has no effect on either. */
inline judge(e) {
  d_step {
    won = (word[e] == pending);
    if
    :: won -> word[e] = ended; listed[e] = 0
    :: else
    fi
  }
}

/* local_locks::end */
inline end_waiter(e) {
  judge(e);
  if
  :: won -> abandon(e)
  :: else
  fi
}

/* local_locks::refuse, for a waiter that hangs nowhere. */
inline refuse(e) {
  d_step {
    won = (word[e] == pending);
    if
    :: won -> word[e] = ended; listed[e] = 0; tell_client(e)
    :: else
    fi;
    won = 0
  }
}

/* The end of local_locks::hang: lock_port::take_manager (here, waits for an
 * idle one), assign, lock_port::start, which makes it look. */
inline adopt_orphan() {
  atomic {
    if
    :: idle[1] -> other = 1
#if MANAGERS > 1
    :: !idle[1] && idle[2] -> other = 2
#endif
    fi;
    idle[other] = 0;
#ifdef LOOKS_AT_ORPHAN
    has_queue[other] = 1
#endif
  }
  assign(other);
  d_step { has_queue[other] = 1; looks[other] = 1; starting = 0; other = 0 }
}

/* local_locks::lock: enlist and hang. */
inline lock(e) {
  d_step {
    listed[e] = !closed[session(e)];
    yes = listed[e];
    if
    :: !yes && word[e] == pending -> word[e] = ended; tell_client(e)
    :: else
    fi
  }
  if
  :: yes ->
     acquire(e);
     if
     :: got -> settle_granted(e)
     :: !got && !hangs && !lost[e] ->
#ifndef LEFT_IN_LEDGER
        listed[e] = 0
#else
        skip
#endif
     :: else
     fi;
     e = 0;
     do
     :: e < ALL && lost[e] -> refuse(e); lost[e] = 0
     :: e < ALL && !lost[e] -> e++
     :: else -> break
     od;
     if
     :: orphan -> adopt_orphan()
     :: else
     fi
  :: else
  fi;
  e = 0;
  hangs = 0
}

/* local_locks::try_lock, then lock: one ask of a client. From its first step
 * on it may be ended. */
inline ask() {
  atomic {
    e = c * ASKS + asked;
    asked++;
    if
    :: mode[e] = shared
    :: mode[e] = exclusive
    fi;
    try_acquire(e)
  }
  if
  :: got ->
     d_step {
       got = 0;
       won = !closed[c];
       if
       :: won -> entered[e] = 1; word[e] = granted; tell_client(e)
       :: else -> word[e] = ended
       fi
     }
     if
     :: !won -> take_out(e, 1, 1); after()
     :: else
     fi;
     e = 0;
     d_step { won = 0; done = 0 }
  :: else -> lock(e)
  fi
}

/* session_ledger::drop */
inline drop(e) {
  d_step {
    assert(parties[e] > 0);
    parties[e]--
  }
}

/* local_locks::release */
inline release(e) {
  take_out(e, 0, 0);
  after();
  d_step {
    if
    :: entered[e] -> assert(parties[e] == 1); entered[e] = 0; parties[e] = 0
    :: else -> assert(parties[e] > 0); parties[e]--
    fi;
    done = 0
  }
}

inline let_go(a) {
  d_step {
    e = c * ASKS + a;
    have[e] = 0;
    handles[c]--;
    told_exclusive[c] = (told_exclusive[c] && handles[c] > 0)
  }
  release(e);
  e = 0
}

/* -- processes -------------------------------------------------------------- */

proctype client(byte c) {
  byte asked, i, k, at, other, first, best, e;
  byte next = NOBODY, passed = NOBODY;
  bit any, own, others, yes, got, won, hangs, orphan, done;
  bit lost[ALL];

  do
  :: asked < (c == CLIENTS - 1 -> ASKS - FEWER : ASKS) -> ask()
  :: have[c * ASKS] -> let_go(0)
#if ASKS > 1
  :: have[c * ASKS + 1] -> let_go(1)
#endif
#if ASKS > 2
  :: have[c * ASKS + 2] -> let_go(2)
#endif
  :: told_exclusive[c] ->
     make_shared(c)
  :: handles[c] == 0 && asked > 0 &&
#if ASKS > 1
     word[c * ASKS + 1] == nothing &&
#endif
#if ASKS > 2
     word[c * ASKS + 2] == nothing &&
#endif
     word[c * ASKS] == nothing -> break
  od;
  finished++
}

/* Deadlines, cancels and deaths, of any session at any moment. */
proctype reaper() {
  byte c, i, k, at, first, best, e, acts;
  byte next = NOBODY, passed = NOBODY;
  bit any, own, others, yes, got, won, done;
  bit holds[ASKS];
  bit waits[ASKS];

  do
  :: acts < ACTS ->
     atomic {
       if
       :: word[0] == pending -> e = 0
       :: word[1] == pending -> e = 1
#if ALL > 2
       :: word[2] == pending -> e = 2
#endif
#if ALL > 3
       :: word[3] == pending -> e = 3
#endif
#if ALL > 4
       :: word[4] == pending -> e = 4
       :: word[5] == pending -> e = 5
#endif
       :: else -> e = NOBODY
       fi;
       if
       :: e != NOBODY -> acts++; judge(e)
       :: else -> acts = ACTS
       fi
     }
     if
     :: won -> abandon(e)
     :: else
     fi;
     e = 0
  :: acts < ACTS ->
     /* local_locks::close; session_ledger::close is the first step. */
     atomic {
       acts++;
       if
       :: !closed[0] -> c = 0
       :: !closed[1] -> c = 1
#if CLIENTS > 2
       :: !closed[2] -> c = 2
#endif
       :: else -> c = 0
       fi;
       closed[c] = 1;
       do
       :: e < ASKS ->
          waits[e] = listed[c * ASKS + e];
          listed[c * ASKS + e] = 0;
          holds[e] = entered[c * ASKS + e];
          entered[c * ASKS + e] = 0;
          parties[c * ASKS + e] = parties[c * ASKS + e] + holds[e];
          e++
       :: else -> break
       od;
       e = c * ASKS
     }
     do
     :: e < (c + 1) * ASKS && waits[e % ASKS] ->
        end_waiter(e);
        waits[e % ASKS] = 0
     :: e < (c + 1) * ASKS && !waits[e % ASKS] -> e++
     :: else -> break
     od;
     e = c * ASKS;
     do
     :: e < (c + 1) * ASKS && holds[e % ASKS] ->
        take_out(e, 0, 0);
        after();
        drop(e);
        holds[e % ASKS] = 0
     :: e < (c + 1) * ASKS && !holds[e % ASKS] -> e++
     :: else -> break
     od;
     e = 0; c = 0; done = 0
  :: true -> break
  od;
  finished++
}

/* local_locks::manage, at each look. */
proctype term_manager(byte m) {
  byte i, k, at, e, count, first, best;
  byte next = NOBODY, passed = NOBODY;
  bit any, own, others, yes, got, won, gone, done, busy, again;

  bit mine[ALL]; /* taken out of the queue, not settled yet */

end:
  do
  :: atomic {
       looks[m] -> looks[m] = 0;
       if
       :: has_queue[m] -> grant(m); busy = 1
       :: else
       fi
     }
     do
     :: busy ->
        do
        :: e < ALL && mine[e] -> settle_granted(e); mine[e] = 0
        :: e < ALL && !mine[e] -> e++
        :: else -> break
        od;
        e = 0;
        if
        :: gone -> d_step { gone = 0; busy = 0; idle[m] = 1 }
        :: !gone && again -> grant(m)
        :: else -> busy = 0
        fi
     :: else -> break
     od
  od
}

init {
  byte i;
  atomic {
    do
    :: i < CLIENTS -> run client(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < REAPERS -> run reaper(); i++
    :: else -> break
    od;
    i = 1;
    do
    :: i <= MANAGERS -> idle[i] = 1; run term_manager(i); i++
    :: else -> break
    od;
    i = 0
  }
  /* In the end nothing is left: no hold, no waiter, no queue; and every
   * request that was made was settled. */
  atomic {
    (finished == CLIENTS + REAPERS && !looks[1] && idle[1] &&
#if MANAGERS > 1
     !looks[2] && idle[2] &&
#endif
     true);
    assert(!attached && row_mode == none && size == 0 && drawn == 0);
    do
    :: i < ALL ->
       assert(record[i] == none && !entered[i] && !listed[i]);
       assert(parties[i] == 0);
       i++
    :: else -> break
    od
  }
}

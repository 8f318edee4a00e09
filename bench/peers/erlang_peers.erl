%% OTP's own lock engines, mnesia and global, in the designs and the contention
%% of pawl's benches: two Erlang nodes on loopback with one scheduler each for
%% designs 1, 3 and 4, one node with two schedulers for the hot term.
%%
%% Started by bench/peers/erlang, which compiles it. What it is told is in the
%% environment: ENGINES, DESIGNS, CLIENTS (of each node), POOL, KEYS, SECONDS,
%% WARM_UP, ACTORS (sizes of the hot crowd), JSON (a file, maybe empty).
%%
%% A client is a process. In mnesia a transaction takes {global, Key, Nodes}
%% locks: `write` on both nodes in designs 1 and 3, `read` on its own in design
%% 4, on keys that nobody else uses; nothing is read or written. In global it is
%% set_lock and del_lock with as many retries as it takes. Rows are printed and
%% written like those of bench/measure.hpp.
-module(erlang_peers).
-export([main/0, node_start/1, node_prepare/1, node_run/1]).

-define(STEPS, 16). % of the histogram, for each power of two

%% -- the driver ---------------------------------------------------------------

main() ->
    Engines = words("ENGINES"),
    Designs = words("DESIGNS"),
    [design(E, D) || D <- Designs, E <- Engines, promises(E, D)],
    [hot(E, list_to_integer(N)) || N <- words("ACTORS"), E <- Engines],
    halt(case get(bad) of undefined -> 0; _ -> 1 end).

%% global has exclusive locks only, and nothing that tells a deadlock.
promises(global, D) -> D =:= '1';
promises(mnesia, _) -> true.

design(Engine, Design) ->
    Keys = case Design of '1' -> 1; _ -> number("KEYS") end,
    Clients = number("CLIENTS"),
    Task = #{engine => Engine, design => Design, keys => Keys,
             clients => Clients, pool => number("POOL"), nodes => 2},
    {Figures, Good} = run(2, "1:1", Task),
    row("designs", Engine,
        [{design, Design}, {nodes, 2}, {threads, 1}, {clients, Clients},
         {pool, number("POOL")}], Figures, Good).

hot(Engine, Actors) ->
    Task = #{engine => Engine, design => hot, keys => 1, clients => Actors,
             pool => 1, nodes => 1},
    {Figures, Good} = run(1, "2:2", Task),
    row("contention", Engine, [{actors, Actors}, {threads, 2}], Figures, Good).

run(Count, Schedulers, Task) ->
    Peers = [start_peer(I, Schedulers) || I <- lists:seq(0, Count - 1)],
    Names = [N || {_, N} <- Peers],
    [ok = call(P, node_start, [Names]) || {P, _} <- Peers],
    Tasks = lists:zip(Peers, lists:seq(0, Count - 1)),
    Timed = Task#{names => Names, seconds => real("SECONDS"),
                  warm_up => real("WARM_UP")},
    [ok = call(P, node_prepare, [Timed#{number => I}]) || {{P, _}, I} <- Tasks],
    Self = self(),
    [spawn_link(fun() -> Self ! {done, call(P, node_run, [Timed])} end)
     || {P, _} <- Peers],
    Results = [receive {done, R} -> R end || _ <- Peers],
    [peer:stop(P) || {P, _} <- Peers],
    {figures(Task, Results), lists:all(fun(R) -> maps:get(good, R) end, Results)}.

start_peer(I, Schedulers) ->
    Dir = filename:dirname(code:which(?MODULE)),
    {ok, Peer, Name} = peer:start_link(
        #{name => "pawl_peer_" ++ integer_to_list(I), host => "127.0.0.1",
          longnames => true, connection => standard_io,
          args => ["+S", Schedulers, "+P", "1000000", "-pa", Dir,
                   "-setcookie", "pawl", "-mnesia", "dump_log_write_threshold",
                   "100000"]}),
    {Peer, Name}.

call(Peer, Function, Args) ->
    peer:call(Peer, ?MODULE, Function, Args, infinity).

figures(#{design := Design, keys := Keys}, Results) ->
    Sum = fun(K) -> lists:sum([maps:get(K, R) || R <- Results]) end,
    Rate = lists:sum([maps:get(transactions, R) / maps:get(seconds, R)
                      || R <- Results]),
    Transactions = max(Sum(transactions), 1),
    Times = times([maps:get(histogram, R) || R <- Results]),
    Cpu = Sum(cpu_ms) * 1.0e-3,
    case Design of
        hot ->
            [#{counts := Counts}] = Results,
            [{per_second, Rate},
             {fairness, lists:min(Counts) / max(lists:max(Counts), 1)},
             {fewest, lists:min(Counts)}, {most, lists:max(Counts)},
             {cpu_us_per_grant, Cpu * 1.0e6 / Transactions},
             {wait, {object, Times}}];
        _ ->
            [{locks_per_second, Rate * Keys}, {transactions_per_second, Rate}]
            ++ Times
            ++ [{restarts, Sum(restarts) / Transactions},
                {cpu_s_per_million_locks, Cpu * 1.0e6 / Transactions / Keys},
                {peak_mb, lists:max([maps:get(peak, R) || R <- Results])
                          * 1024 / 1.0e6}]
    end.

times(Histograms) ->
    Counts = [lists:sum(Xs) || Xs <- transpose([C || {C, _, _} <- Histograms])],
    All = max(lists:sum(Counts), 1),
    Sum = lists:sum([S || {_, S, _} <- Histograms]),
    Max = lists:max([M || {_, _, M} <- Histograms]),
    Quantile = fun(Q) -> min(quantile(Counts, Q * All, 0), Max) * 1.0e-3 end,
    [{mean_us, Sum * 1.0e-3 / All}, {p50_us, Quantile(0.5)},
     {p95_us, Quantile(0.95)}, {p99_us, Quantile(0.99)}, {max_us, Max * 1.0e-3}].

transpose([[] | _]) -> [];
transpose(Lists) -> [[hd(L) || L <- Lists] | transpose([tl(L) || L <- Lists])].

quantile([N | _], Left, I) when N > Left -> math:pow(2, (I + 1) / ?STEPS);
quantile([N | Rest], Left, I) -> quantile(Rest, Left - N, I + 1);
quantile([], _, I) -> math:pow(2, I / ?STEPS).

%% -- a node -------------------------------------------------------------------

node_start([First | _] = Names) ->
    ok = mnesia:start(),
    case node() of
        First -> ok;
        _ -> {ok, [_ | _]} = mnesia:change_config(extra_db_nodes, Names), ok
    end.

%% Spawns the clients; they wait for the word.
node_prepare(#{clients := Clients} = Task) ->
    Shared = #{counts => counters:new(Clients, []),
               all => counters:new(4, [write_concurrency]),
               histogram => counters:new(45 * ?STEPS, [write_concurrency]),
               flags => atomics:new(2, [])},
    Self = self(),
    spawn(fun() -> % whose table outlives this call
              ets:new(guarded, [public, named_table, set]),
              ets:insert(guarded, {counter, 0}),
              Self ! guarded,
              receive never -> ok end
          end),
    receive guarded -> ok end,
    Whole = maps:merge(Task, Shared),
    Pids = [spawn(fun() -> client(Whole, I) end)
            || I <- lists:seq(1, Clients)],
    persistent_term:put(prepared, {Whole, Pids}),
    ok.

node_run(#{seconds := Seconds, warm_up := WarmUp}) ->
    {#{counts := Counts, all := All, flags := Flags, clients := Clients,
       histogram := Histogram, design := Design}, Pids}
        = persistent_term:get(prepared),
    Refs = [monitor(process, P) || P <- Pids],
    [P ! go || P <- Pids],
    timer:sleep(round(WarmUp * 1000)),
    Each = fun() -> [counters:get(Counts, I) || I <- lists:seq(1, Clients)] end,
    Before = Each(),
    Restarts = mnesia:system_info(transaction_restarts),
    {Cpu, _} = statistics(runtime),
    Since = erlang:monotonic_time(),
    atomics:put(Flags, 1, 1),
    timer:sleep(round(Seconds * 1000)),
    atomics:put(Flags, 1, 0),
    Now = erlang:monotonic_time(),
    After = Each(),
    {CpuAfter, _} = statistics(runtime),
    RestartsAfter = mnesia:system_info(transaction_restarts),
    atomics:put(Flags, 2, 1),
    Ends = [receive {'DOWN', R, process, _, Why} -> Why end || R <- Refs],
    timer:sleep(200), % releases that are under way
    Total = lists:sum(Each()),
    [{counter, Guarded}] = ets:lookup(guarded, counter),
    Good = lists:all(fun(E) -> E =:= normal end, Ends) andalso Total > 0
        andalso mnesia:system_info(held_locks) =:= []
        andalso (Design =/= hot orelse Guarded =:= Total),
    Done = [B - A || {A, B} <- lists:zip(Before, After)],
    #{transactions => lists:sum(Done), counts => Done, good => Good,
      seconds => erlang:convert_time_unit(Now - Since, native, nanosecond)
                 * 1.0e-9,
      restarts => RestartsAfter - Restarts, cpu_ms => CpuAfter - Cpu,
      peak => peak_kib(),
      histogram => {[counters:get(Histogram, I)
                     || I <- lists:seq(1, 45 * ?STEPS)],
                    counters:get(All, 1), counters:get(All, 2)}}.

peak_kib() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [Kib]} = re:run(Text, "VmHWM:\\s+(\\d+)",
                            [{capture, all_but_first, list}]),
    list_to_integer(Kib).

%% -- a client -----------------------------------------------------------------

client(#{number := Number} = Task, Index) ->
    rand:seed(exsss, {Number, Index, 4711}),
    receive go -> loop(Task, Index) end.

loop(#{flags := Flags, counts := Counts} = Task, Index) ->
    case atomics:get(Flags, 2) of
        1 -> ok;
        0 ->
            Keys = keys(Task, Index),
            Since = erlang:monotonic_time(nanosecond),
            transaction(Task, Keys),
            counters:add(Counts, Index, 1),
            case atomics:get(Flags, 1) of
                1 -> record(Task, erlang:monotonic_time(nanosecond) - Since);
                0 -> ok
            end,
            loop(Task, Index)
    end.

keys(#{design := hot}, _) -> [hot];
keys(#{design := '4', pool := Pool, clients := Clients, nodes := Nodes,
       number := Number, keys := Keys}, Index) ->
    Span = Pool div (Clients * Nodes),
    pick(Keys, (Number * Clients + Index - 1) * Span, Span, []);
keys(#{pool := Pool, keys := Keys}, _) -> pick(Keys, 0, Pool, []).

pick(0, _, _, Keys) -> Keys;
pick(N, First, Count, Keys) ->
    Key = First + rand:uniform(Count) - 1,
    case lists:member(Key, Keys) of
        true -> pick(N, First, Count, Keys);
        false -> pick(N - 1, First, Count, [Key | Keys])
    end.

transaction(#{engine := mnesia, design := '4'}, Keys) ->
    mnesia(Keys, [node()], read, fun() -> ok end);
transaction(#{engine := mnesia, design := hot}, Keys) ->
    mnesia(Keys, [node()], write, fun write/0);
transaction(#{engine := mnesia, names := Names}, Keys) ->
    mnesia(Keys, Names, write, fun() -> ok end);
transaction(#{engine := global, names := Names, design := Design}, [Key]) ->
    true = global:set_lock({Key, self()}, Names),
    Design =:= hot andalso write(),
    global:del_lock({Key, self()}, Names).

mnesia(Keys, Nodes, Mode, Write) ->
    {atomic, ok} = mnesia:transaction(
        fun() ->
            [mnesia:lock({global, K, Nodes}, Mode) || K <- Keys],
            Write()
        end).

%% In two steps: it is the lock that makes them one.
write() ->
    [{counter, N}] = ets:lookup(guarded, counter),
    ets:insert(guarded, {counter, N + 1}),
    ok.

record(#{histogram := Histogram, all := All}, Ns) ->
    Bucket = min(trunc(math:log2(max(Ns, 1)) * ?STEPS) + 1, 45 * ?STEPS),
    counters:add(Histogram, Bucket, 1),
    counters:add(All, 1, Ns),
    case Ns > counters:get(All, 2) of
        true -> counters:put(All, 2, Ns);
        false -> ok
    end.

%% -- words --------------------------------------------------------------------

words(Name) ->
    Convert = case Name of
                  "ACTORS" -> fun(X) -> X end;
                  _ -> fun list_to_atom/1
              end,
    [Convert(X) || X <- string:lexemes(os:getenv(Name, ""), ",")].

number(Name) -> list_to_integer(os:getenv(Name)).

real(Name) ->
    Text = os:getenv(Name),
    try list_to_float(Text) catch error:badarg -> 1.0 * list_to_integer(Text) end.

lacks(mnesia) -> "fairness, tokens, time-outs; restarts instead of waiting";
lacks(global) -> "fairness, shared locks, deadlocks found, tokens; it polls".

row(Bench, Engine, Where, Figures, Good) ->
    Good orelse put(bad, true),
    io:format("~-28s ~s~n     ~s~n     check: ~s; lacks: ~s~n",
              [Engine, lists:join(" ", [[atom_to_list(K), "=", json(V)]
                                        || {K, V} <- Where]),
               lists:join(" ", [[atom_to_list(K), " ", json(V)]
                                || {K, V} <- Figures]),
               case Good of true -> "good"; false -> "BAD" end, lacks(Engine)]),
    Line = json({object, [{bench, list_to_atom(Bench)}, {subject, Engine},
                          {where, {object, Where}},
                          {figures, {object, Figures}}, {good, Good},
                          {lacks, list_to_atom(lacks(Engine))}]}),
    case os:getenv("JSON", "") of
        "" -> ok;
        File -> ok = file:write_file(File, [Line, "\n"], [append])
    end.

json({object, Fields}) ->
    ["{", lists:join(",", [["\"", atom_to_list(K), "\":", json(V)]
                           || {K, V} <- Fields]), "}"];
json(X) when is_integer(X) -> integer_to_list(X);
json(X) when is_float(X) -> io_lib:format("~.3f", [X]);
json(X) when is_boolean(X) -> atom_to_list(X);
json(X) when is_atom(X) -> ["\"", atom_to_list(X), "\""].
